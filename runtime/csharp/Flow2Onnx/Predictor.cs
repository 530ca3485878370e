using System;
using System.Collections.Generic;
using System.Threading;

namespace Flow2Onnx
{
    /// <summary>A model file, or a predict job of a bundle; called by any number of threads at
    /// once.</summary>
    public sealed class Predictor : IDisposable
    {
        // Runs share the lock, closing has it alone: it waits for the runs that have begun.
        private readonly ReaderWriterLockSlim gate = new ReaderWriterLockSlim();
        private readonly Stack<Call> calls = new Stack<Call>();
        private IntPtr handle; // 0 once it is closed

        /// <summary>Open a model (without a job), or a predict job of a bundle (null: the
        /// first).</summary>
        public Predictor(string modelOrBundle, string job = null, Options options = null)
        {
            if (modelOrBundle == null) throw new ArgumentNullException(nameof(modelOrBundle));
            var call = new Call();
            try
            {
                IntPtr path = call.Text(modelOrBundle), name = call.Text(job);
                IntPtr chosen = call.Options(options ?? new Options());
                call.Check(Native.f2o_predictor_open(path, name, chosen, call.Out, call.Error));
                handle = call.OutValue;
            }
            catch
            {
                call.Dispose();
                GC.SuppressFinalize(this);
                throw;
            }
            Feeds = Spec.ListAt(Native.f2o_predictor_feeds(handle, call.Out), call.OutValue);
            Results = Spec.ListAt(Native.f2o_predictor_results(handle, call.Out), call.OutValue);
            calls.Push(call);
        }

        /// <summary>Free what nobody has disposed of.</summary>
        ~Predictor()
        {
            Close();
        }

        /// <summary>What it reads.</summary>
        public IReadOnlyList<Spec> Feeds { get; }

        /// <summary>What it gives.</summary>
        public IReadOnlyList<Spec> Results { get; }

        /// <summary>The results; feeds come by place or by name, each once.</summary>
        public IReadOnlyDictionary<string, Tensor> Run(params Tensor[] feeds)
        {
            gate.EnterReadLock();
            try
            {
                IntPtr open = Open();
                Call call = Borrow();
                try
                {
                    IntPtr given = call.Tensors(feeds);
                    call.Check(Native.f2o_predictor_run(
                        open, given, (UIntPtr)(uint)feeds.Length, call.Results, call.Error));
                    return call.CopyResults();
                }
                finally
                {
                    call.Begin();
                    lock (calls) calls.Push(call);
                }
            }
            finally
            {
                gate.ExitReadLock();
            }
        }

        /// <summary>While stopped, runs of any thread end soon, or do not begin, with a
        /// StoppedException; false lets them begin again.</summary>
        public void Stop(bool stopped)
        {
            gate.EnterReadLock();
            try
            {
                Native.f2o_predictor_stop(Open(), stopped);
            }
            finally
            {
                gate.ExitReadLock();
            }
        }

        private Call Borrow()
        {
            lock (calls) return calls.Count > 0 ? calls.Pop() : new Call();
        }

        private IntPtr Open()
        {
            if (handle == IntPtr.Zero) throw new ObjectDisposedException(nameof(Predictor));
            return handle;
        }

        /// <summary>Free all that it holds, once the runs that have begun are done.</summary>
        public void Dispose()
        {
            gate.EnterWriteLock();
            try
            {
                Close();
            }
            finally
            {
                gate.ExitWriteLock();
            }
            GC.SuppressFinalize(this);
        }

        private void Close()
        {
            if (handle == IntPtr.Zero) return;
            Native.f2o_predictor_close(handle);
            handle = IntPtr.Zero;
            foreach (Call call in calls) call.Dispose();
            calls.Clear();
        }
    }
}
