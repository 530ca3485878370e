using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Flow2Onnx
{
    /// <summary>The whole numbers that a feed may hold: from Least on, below Below, and perhaps one
    /// that is taken for no label.</summary>
    public sealed class Range
    {
        internal Range(NativeRange found)
        {
            Least = found.Least;
            Below = found.Below;
            Ignored = found.HasIgnored != 0 ? found.Ignored : (long?)null;
            Layer = Memory.Text(found.Layer);
        }

        /// <summary>The least number.</summary>
        public long Least { get; }

        /// <summary>The first number that is too large.</summary>
        public long Below { get; }

        /// <summary>A number that is taken for no label.</summary>
        public long? Ignored { get; }

        /// <summary>What reads the numbers, or an empty text.</summary>
        public string Layer { get; }
    }

    /// <summary>A tensor of a model or of the state, without its values.</summary>
    public sealed class Spec
    {
        private Spec(NativeSpec found)
        {
            Name = Memory.Text(found.Name);
            DType = (DType)found.Dtype;
            Shape = new long[(int)found.Rank];
            Symbols = new string[Shape.Count];
            var sizes = (long[])Shape;
            if (sizes.Length > 0) Marshal.Copy(found.Shape, sizes, 0, sizes.Length);
            for (int i = 0; found.Symbols != IntPtr.Zero && i < sizes.Length; i++)
            {
                ((string[])Symbols)[i] = Memory.Text(Marshal.ReadIntPtr(found.Symbols, i * IntPtr.Size));
            }
            Role = Memory.Text(found.Role);
            Of = Memory.Text(found.Of);
            IsTrainable = found.Trainable != 0;
            if (found.Range != IntPtr.Zero) Range = new Range(Marshal.PtrToStructure<NativeRange>(found.Range));
        }

        internal static IReadOnlyList<Spec> ListAt(IntPtr first, IntPtr count)
        {
            var found = new List<Spec>();
            int size = Marshal.SizeOf(typeof(NativeSpec));
            for (long i = 0; i < count.ToInt64(); i++)
            {
                found.Add(new Spec(Marshal.PtrToStructure<NativeSpec>(Memory.At(first, i * size))));
            }
            return found.AsReadOnly();
        }

        /// <summary>The name in the model.</summary>
        public string Name { get; }

        /// <summary>The element type.</summary>
        public DType DType { get; }

        /// <summary>The sizes; -1 where one is free.</summary>
        public IReadOnlyList<long> Shape { get; }

        /// <summary>The names of the free sizes, "?" without a name; null in place of fixed
        /// sizes.</summary>
        public IReadOnlyList<string> Symbols { get; }

        /// <summary>Of a state tensor: variable, slot or counter; else null.</summary>
        public string Role { get; }

        /// <summary>The variable of a slot; else null.</summary>
        public string Of { get; }

        /// <summary>True for a state tensor that a step writes.</summary>
        public bool IsTrainable { get; }

        /// <summary>What is known of the numbers of a feed; else null.</summary>
        public Range Range { get; }
    }
}
