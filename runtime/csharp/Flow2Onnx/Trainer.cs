using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Flow2Onnx
{
    /// <summary>A bundle's job with its state. Calls of one trainer take turns; a call that fails
    /// leaves the state as it was. Results are arrays of the caller's own.</summary>
    public sealed class Trainer : IDisposable
    {
        private readonly object turn = new object();
        private readonly object life = new object(); // held to stop and to close, not to run
        private readonly Call call = new Call();
        private IntPtr handle; // 0 once it is closed

        /// <summary>Open the bundle in a folder.</summary>
        public Trainer(string bundle, Options options = null)
        {
            if (bundle == null) throw new ArgumentNullException(nameof(bundle));
            try
            {
                IntPtr path = call.Text(bundle);
                IntPtr chosen = call.Options(options ?? new Options());
                call.Check(Native.f2o_trainer_open(path, chosen, call.Out, call.Error));
                handle = call.OutValue;
            }
            catch
            {
                call.Dispose();
                GC.SuppressFinalize(this);
                throw;
            }
            Feeds = Spec.ListAt(Native.f2o_trainer_feeds(handle, call.Out), call.OutValue);
            Results = Spec.ListAt(Native.f2o_trainer_results(handle, call.Out), call.OutValue);
            State = new State(this, Native.f2o_trainer_state(handle));
        }

        /// <summary>Free what nobody has disposed of.</summary>
        ~Trainer()
        {
            Close();
        }

        /// <summary>Free all that it holds; later calls are an ObjectDisposedException.</summary>
        public void Dispose()
        {
            lock (turn)
            {
                lock (life) Close();
            }
            GC.SuppressFinalize(this);
        }

        private void Close()
        {
            if (handle == IntPtr.Zero) return;
            Native.f2o_trainer_close(handle);
            handle = IntPtr.Zero;
            call.Dispose();
        }

        private IntPtr Open()
        {
            if (handle == IntPtr.Zero) throw new ObjectDisposedException(nameof(Trainer));
            return handle;
        }

        /// <summary>What a call does with the handle, alone and from its beginning to its end.</summary>
        internal T Take<T>(Func<Call, IntPtr, T> work)
        {
            lock (turn)
            {
                IntPtr open = Open();
                try
                {
                    return work(call, open);
                }
                finally
                {
                    call.Begin();
                }
            }
        }

        internal void Do(Func<Call, IntPtr, Status> work)
        {
            Take<object>((now, open) =>
            {
                now.Check(work(now, open));
                return null;
            });
        }

        private IReadOnlyDictionary<string, Tensor> Give(Func<Call, IntPtr, Status> work)
        {
            return Take((now, open) =>
            {
                now.Check(work(now, open));
                return now.CopyResults();
            });
        }

        // ---- Running -------------------------------------------------------------------------

        /// <summary>What a step reads.</summary>
        public IReadOnlyList<Spec> Feeds { get; }

        /// <summary>What a step gives.</summary>
        public IReadOnlyList<Spec> Results { get; }

        /// <summary>One step; feeds come by place or by name, each once.</summary>
        public IReadOnlyDictionary<string, Tensor> Step(params Tensor[] feeds)
        {
            return Give((now, open) => Native.f2o_trainer_step(
                open, now.Tensors(feeds), Size(feeds), now.Results, now.Error));
        }

        /// <summary>The results of a step that is not made.</summary>
        public IReadOnlyDictionary<string, Tensor> Evaluate(params Tensor[] feeds)
        {
            return Give((now, open) => Native.f2o_trainer_evaluate(
                open, now.Tensors(feeds), Size(feeds), now.Results, now.Error));
        }

        /// <summary>Add up the gradients of a batch.</summary>
        public IReadOnlyDictionary<string, Tensor> Accumulate(params Tensor[] feeds)
        {
            return Give((now, open) => Native.f2o_trainer_accumulate(
                open, now.Tensors(feeds), Size(feeds), now.Results, now.Error));
        }

        /// <summary>Make one step of the mean of the gradients added up.</summary>
        public void Update()
        {
            Do((now, open) => Native.f2o_trainer_update(open, now.Error));
        }

        /// <summary>The first predict job on the present state.</summary>
        public IReadOnlyDictionary<string, Tensor> Predict(params Tensor[] feeds)
        {
            return PredictJob(null, feeds);
        }

        /// <summary>A predict job on the present state.</summary>
        public IReadOnlyDictionary<string, Tensor> PredictJob(string job, params Tensor[] feeds)
        {
            return Give((now, open) => Native.f2o_trainer_predict(
                open, now.Text(job), now.Tensors(feeds), Size(feeds), now.Results, now.Error));
        }

        /// <summary>What a call gives, such as RunAsync(t => t.Step(images, labels), token), made on
        /// a thread of the pool. Cancelling stops it: the state is as it was.</summary>
        public async Task<T> RunAsync<T>(Func<Trainer, T> work, CancellationToken token)
        {
            bool stopped = false;
            try
            {
                // Disposing of the registration waits for a call of it that has begun.
                using (token.Register(() => { stopped = true; Stop(true); }))
                {
                    return await Task.Run(() => work(this), token).ConfigureAwait(false);
                }
            }
            catch (StoppedException error) when (token.IsCancellationRequested)
            {
                throw new OperationCanceledException(error.Message, error, token);
            }
            finally
            {
                if (stopped) Stop(false);
            }
        }

        /// <summary>From any thread: while stopped, a run ends soon, or does not begin, with a
        /// StoppedException and the state as it was; false lets runs begin again.</summary>
        public void Stop(bool stopped)
        {
            lock (life) Native.f2o_trainer_stop(Open(), stopped);
        }

        private static UIntPtr Size(Array array)
        {
            return (UIntPtr)(uint)array.Length;
        }

        // ---- Counts, rates, what is frozen ---------------------------------------------------

        /// <summary>The steps done.</summary>
        public long Steps => Take((now, open) => Native.f2o_trainer_steps(open));

        /// <summary>The batches added up since the last update.</summary>
        public long Accumulated => Take((now, open) => Native.f2o_trainer_accumulated(open));

        /// <summary>The rate that overrides the schedule; below 0 while the schedule holds.</summary>
        public double Rate
        {
            get { return Take((now, open) => Native.f2o_trainer_rate(open)); }
            set { Do((now, open) => Native.f2o_trainer_set_rate(open, value, now.Error)); }
        }

        /// <summary>Give the rate back to the schedule.</summary>
        public void UseSchedule()
        {
            Do((now, open) => Native.f2o_trainer_use_schedule(open, now.Error));
        }

        /// <summary>Freeze these variables with their slots, and no others.</summary>
        public void Freeze(params string[] names)
        {
            Do((now, open) => Native.f2o_trainer_freeze(open, now.Texts(names), Size(names), now.Error));
        }

        /// <summary>True for a variable that is frozen.</summary>
        public bool IsFrozen(string variable)
        {
            if (variable == null) throw new ArgumentNullException(nameof(variable));
            return Take((now, open) => Native.f2o_trainer_is_frozen(open, now.Text(variable)));
        }

        // ---- Files ---------------------------------------------------------------------------

        /// <summary>Write a file that appears whole or not at all, also when the process is
        /// killed.</summary>
        public void Save(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            Do((now, open) => Native.f2o_trainer_save(open, now.Text(path), now.Error));
        }

        /// <summary>Go on from a saved state, bit for bit.</summary>
        public void Load(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            Do((now, open) => Native.f2o_trainer_load(open, now.Text(path), now.Error));
        }

        /// <summary>Write the adapter that a bundle of adapters trains, as ONNX Runtime's file
        /// .onnx_adapter, which appears whole or not at all.</summary>
        public void ExportAdapter(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            Do((now, open) =>
                Native.f2o_trainer_export_adapter(open, now.Text(path), now.Error));
        }

        /// <summary>Go on from an adapter of the same modules and ranks; the optimizer's slots
        /// stay.</summary>
        public void LoadAdapter(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            Do((now, open) => Native.f2o_trainer_load_adapter(open, now.Text(path), now.Error));
        }

        /// <summary>Export a predict job (null: the first) with the present weights, for any ONNX
        /// Runtime; the folder is missing, empty, or holds an earlier export.</summary>
        public void ExportPredict(string folder, string job = null)
        {
            if (folder == null) throw new ArgumentNullException(nameof(folder));
            Do((now, open) => Native.f2o_trainer_export_predict(
                open, now.Text(folder), now.Text(job), now.Error));
        }

        /// <summary>The trainer's tensors, which stay its own.</summary>
        public State State { get; }
    }

    /// <summary>The tensors of a trainer by name: weights, the optimizer's slots, the counter.</summary>
    public sealed class State
    {
        private readonly Trainer trainer;
        private readonly IntPtr handle;

        internal State(Trainer trainer, IntPtr handle)
        {
            this.trainer = trainer;
            this.handle = handle;
            Specs = trainer.Take((now, open) =>
                Spec.ListAt(Native.f2o_state_specs(handle, now.Out), now.OutValue));
        }

        /// <summary>What tensors there are.</summary>
        public IReadOnlyList<Spec> Specs { get; }

        /// <summary>Copies of the tensors named; of all if none is.</summary>
        public IReadOnlyDictionary<string, Tensor> Read(params string[] names)
        {
            return trainer.Take((now, open) =>
            {
                IntPtr given = names.Length == 0 ? IntPtr.Zero : now.Texts(names);
                now.Check(Native.f2o_state_read(
                    handle, given, (UIntPtr)(uint)names.Length, now.Results, now.Error));
                return now.CopyResults();
            });
        }

        /// <summary>Replace some tensors. All are checked before any is written.</summary>
        public void Write(params Tensor[] values)
        {
            trainer.Do((now, open) => Native.f2o_state_write(
                handle, now.Tensors(values), (UIntPtr)(uint)values.Length, now.Error));
        }

        /// <summary>Replace exactly all tensors.</summary>
        public void Replace(params Tensor[] values)
        {
            trainer.Do((now, open) => Native.f2o_state_replace(
                handle, now.Tensors(values), (UIntPtr)(uint)values.Length, now.Error));
        }
    }
}
