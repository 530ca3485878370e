using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Flow2Onnx
{
    /// <summary>What one call passes by address, its error and its results: memory that is freed and
    /// arrays that are let go when it is disposed of.</summary>
    internal sealed class Call : IDisposable
    {
        private static readonly int TensorSize = Marshal.SizeOf(typeof(NativeTensor));
        private static readonly int MessageOffset =
            Marshal.OffsetOf(typeof(NativeError), "Message").ToInt32();

        private readonly List<IntPtr> allocated = new List<IntPtr>();
        private readonly List<GCHandle> pinned = new List<GCHandle>();

        internal Call()
        {
            Error = Zeroed(Marshal.SizeOf(typeof(NativeError)));
            Out = Zeroed(IntPtr.Size);
            Results = Zeroed(Marshal.SizeOf(typeof(NativeTensors)));
        }

        internal IntPtr Error { get; }

        /// <summary>The address at which a call leaves a pointer or a size.</summary>
        internal IntPtr Out { get; }

        internal IntPtr OutValue => Marshal.ReadIntPtr(Out);

        internal IntPtr Results { get; }

        /// <summary>Let the arrays go that the call before has read.</summary>
        internal void Begin()
        {
            foreach (GCHandle pin in pinned) pin.Free();
            pinned.Clear();
            foreach (IntPtr memory in allocated) Marshal.FreeHGlobal(memory);
            allocated.Clear();
        }

        /// <summary>Free all that was allocated.</summary>
        public void Dispose()
        {
            Begin();
            Native.f2o_tensors_free(Results);
            foreach (IntPtr memory in new[] { Error, Out, Results }) Marshal.FreeHGlobal(memory);
        }

        private static IntPtr Zeroed(int bytes)
        {
            IntPtr memory = Marshal.AllocHGlobal(Math.Max(bytes, 1));
            Marshal.Copy(new byte[bytes], 0, memory, bytes);
            return memory;
        }

        private IntPtr Allocate(int bytes)
        {
            IntPtr memory = Zeroed(bytes);
            allocated.Add(memory);
            return memory;
        }

        // ---- What it passes ------------------------------------------------------------------

        /// <summary>A text as C reads it; 0 for null.</summary>
        internal IntPtr Text(string text)
        {
            if (text == null) return IntPtr.Zero;
            byte[] bytes = Memory.Encoded(text);
            IntPtr memory = Allocate(bytes.Length);
            Marshal.Copy(bytes, 0, memory, bytes.Length);
            return memory;
        }

        /// <summary>An array of texts.</summary>
        internal IntPtr Texts(string[] texts)
        {
            IntPtr array = Allocate(texts.Length * IntPtr.Size);
            for (int i = 0; i < texts.Length; i++)
            {
                Marshal.WriteIntPtr(array, i * IntPtr.Size, Text(NotNull(texts[i], i)));
            }
            return array;
        }

        /// <summary>An array of tensors, whose arrays are used where they are.</summary>
        internal IntPtr Tensors(Tensor[] tensors)
        {
            IntPtr array = Allocate(tensors.Length * TensorSize);
            for (int i = 0; i < tensors.Length; i++)
            {
                Marshal.StructureToPtr(Passed(NotNull(tensors[i], i)), Memory.At(array, i * TensorSize), false);
            }
            return array;
        }

        private NativeTensor Passed(Tensor tensor)
        {
            long[] shape = tensor.Shape;
            IntPtr sizes = Allocate(8 * shape.Length);
            Marshal.Copy(shape, 0, sizes, shape.Length);
            GCHandle pin = GCHandle.Alloc(tensor.Elements, GCHandleType.Pinned);
            pinned.Add(pin);
            return new NativeTensor
            {
                Name = Text(tensor.Name),
                Dtype = (int)tensor.DType,
                Rank = (UIntPtr)(uint)shape.Length,
                Shape = sizes,
                Data = Memory.At(pin.AddrOfPinnedObject(), tensor.Offset),
            };
        }

        internal IntPtr Options(Options options)
        {
            var passed = new NativeOptions
            {
                Threads = options.Threads,
                Optimization = (int)options.Optimization,
                FiniteLosses = (byte)(options.FiniteLosses ? 1 : 0),
                OrtFormat = (byte)(options.OrtFormat ? 1 : 0),
                Library = Text(options.Library),
            };
            IntPtr memory = Allocate(Marshal.SizeOf(typeof(NativeOptions)));
            Marshal.StructureToPtr(passed, memory, false);
            return memory;
        }

        private static T NotNull<T>(T value, int place) where T : class
        {
            if (value != null) return value;
            throw new ArgumentNullException("number " + place + " of those given is null");
        }

        // ---- What it answers -----------------------------------------------------------------

        /// <summary>Return if the status says so; else throw what the error says.</summary>
        internal void Check(Status status)
        {
            if (status == Status.Ok) return;
            throw Flow2OnnxException.Of(status, Memory.Text(Memory.At(Error, MessageOffset)));
        }

        /// <summary>Copies of the results.</summary>
        internal IReadOnlyDictionary<string, Tensor> CopyResults()
        {
            var tensors = Marshal.PtrToStructure<NativeTensors>(Results);
            var found = new Dictionary<string, Tensor>();
            for (long i = 0; i < (long)tensors.Count.ToUInt64(); i++)
            {
                IntPtr item = Memory.At(tensors.Items, i * TensorSize);
                Tensor tensor = CopyOf(Marshal.PtrToStructure<NativeTensor>(item));
                found.Add(tensor.Name, tensor);
            }
            return found;
        }

        private static Tensor CopyOf(NativeTensor item)
        {
            var shape = new long[(int)item.Rank];
            if (shape.Length > 0) Marshal.Copy(item.Shape, shape, 0, shape.Length);
            var dtype = (DType)item.Dtype;
            Array elements = Array.CreateInstance(Tensor.TypeOf(dtype), Tensor.CountOf(dtype, shape));
            CopyBytes(item.Data, elements);
            return Tensor.Of(dtype, elements, shape).Named(Memory.Text(item.Name));
        }

        private static void CopyBytes(IntPtr data, Array elements)
        {
            var floats = elements as float[];
            if (floats != null)
            {
                Marshal.Copy(data, floats, 0, floats.Length);
                return;
            }
            var bytes = new byte[Buffer.ByteLength(elements)];
            Marshal.Copy(data, bytes, 0, bytes.Length);
            Buffer.BlockCopy(bytes, 0, elements, 0, bytes.Length);
        }
    }
}
