using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Flow2Onnx
{
    /// <summary>A tensor of an array, in C order: the array itself, which a call reads where it
    /// lies. A feed without a name is the one that stands at its place.</summary>
    public sealed class Tensor
    {
        private static readonly Dictionary<DType, Type> Types = new Dictionary<DType, Type>
        {
            { DType.Float32, typeof(float) }, { DType.Float64, typeof(double) },
            { DType.Int8, typeof(sbyte) }, { DType.UInt8, typeof(byte) },
            { DType.Int16, typeof(short) }, { DType.UInt16, typeof(ushort) },
            { DType.Int32, typeof(int) }, { DType.UInt32, typeof(uint) },
            { DType.Int64, typeof(long) }, { DType.UInt64, typeof(ulong) },
            { DType.Bool, typeof(byte) }, { DType.Float16, typeof(ushort) },
            { DType.BFloat16, typeof(ushort) },
        };

        private readonly Array elements;
        private readonly int start;
        private readonly long[] shape;

        private Tensor(string name, DType dtype, Array elements, int start, long[] shape)
        {
            Name = name;
            DType = dtype;
            this.elements = elements;
            this.start = start;
            this.shape = shape;
        }

        /// <summary>A float32 tensor. Without sizes it is a single number.</summary>
        public static Tensor Of(float[] elements, params long[] shape)
        {
            return Of(DType.Float32, elements, shape);
        }

        /// <summary>A float64 tensor.</summary>
        public static Tensor Of(double[] elements, params long[] shape)
        {
            return Of(DType.Float64, elements, shape);
        }

        /// <summary>An int32 tensor.</summary>
        public static Tensor Of(int[] elements, params long[] shape)
        {
            return Of(DType.Int32, elements, shape);
        }

        /// <summary>An int64 tensor.</summary>
        public static Tensor Of(long[] elements, params long[] shape)
        {
            return Of(DType.Int64, elements, shape);
        }

        /// <summary>A uint8 tensor.</summary>
        public static Tensor Of(byte[] elements, params long[] shape)
        {
            return Of(DType.UInt8, elements, shape);
        }

        /// <summary>A bool tensor, of a copy: one byte for each element.</summary>
        public static Tensor Of(bool[] elements, params long[] shape)
        {
            if (elements == null) throw new ArgumentNullException(nameof(elements));
            return Of(DType.Bool, Array.ConvertAll(elements, element => (byte)(element ? 1 : 0)), shape);
        }

        /// <summary>A tensor of any type: bool as bytes, float16 and bfloat16 as ushort.</summary>
        public static Tensor Of(DType dtype, Array elements, params long[] shape)
        {
            if (elements == null) throw new ArgumentNullException(nameof(elements));
            if (shape == null) throw new ArgumentNullException(nameof(shape));
            if (elements.GetType() != TypeOf(dtype).MakeArrayType())
            {
                throw new FeedException(dtype + " of " + elements.GetType().Name,
                                        "give an array of " + TypeOf(dtype).Name);
            }
            int count = CountOf(dtype, shape);
            if (count != elements.Length)
            {
                throw new FeedException(
                    dtype + " of shape " + Text(shape) + " has " + count + " elements, but there are "
                        + elements.Length,
                    "give as many elements as the product of the sizes");
            }
            return new Tensor(null, dtype, elements, 0, (long[])shape.Clone());
        }

        internal static Type TypeOf(DType dtype)
        {
            Type type;
            if (Types.TryGetValue(dtype, out type)) return type;
            throw new OptionsException((int)dtype + " is no element type", "choose one of DType");
        }

        /// <summary>The number of elements; a negative size and what no array holds are refused.</summary>
        internal static int CountOf(DType dtype, long[] shape)
        {
            const long tooMany = 1L << 31;
            long count = 1;
            bool isEmpty = false;
            foreach (long size in shape)
            {
                if (size < 0)
                {
                    throw new FeedException("the shape " + Text(shape) + " has a negative size",
                                            "give the sizes of what is in memory");
                }
                isEmpty |= size == 0;
                if (size != 0) count = size >= tooMany || count * size > tooMany ? tooMany : count * size;
            }
            if (isEmpty) return 0;
            if (count * Marshal.SizeOf(TypeOf(dtype)) > int.MaxValue)
            {
                throw new MemoryException(dtype + " of shape " + Text(shape) + " does not fit an array",
                                          "use tensors of less than 2 GiB");
            }
            return (int)count;
        }

        /// <summary>The same array under a name.</summary>
        public Tensor Named(string name)
        {
            return new Tensor(name, DType, elements, start, shape);
        }

        /// <summary>One place on the first axis, such as one batch of many, in the same array.</summary>
        public Tensor Row(long index)
        {
            if (shape.Length == 0 || index < 0 || index >= shape[0])
            {
                throw new ArgumentOutOfRangeException(nameof(index), this + " has no row " + index);
            }
            var inner = new long[shape.Length - 1];
            Array.Copy(shape, 1, inner, 0, inner.Length);
            int size = CountOf(DType, inner);
            return new Tensor(Name, DType, elements, start + (int)index * size, inner);
        }

        /// <summary>The name; null if it has none.</summary>
        public string Name { get; }

        /// <summary>The element type.</summary>
        public DType DType { get; }

        /// <summary>The sizes.</summary>
        public long[] Shape => (long[])shape.Clone();

        /// <summary>The number of elements.</summary>
        public int Count => CountOf(DType, shape);

        /// <summary>The array, such as Values&lt;float&gt;(); of a row, a copy of its part.</summary>
        public T[] Values<T>()
        {
            if (TypeOf(DType) != typeof(T))
            {
                throw new InvalidOperationException(
                    this + " has no " + typeof(T).Name + "\nuse Values<" + TypeOf(DType).Name + ">() or ToDoubles()");
            }
            if (start == 0 && elements.Length == Count) return (T[])elements;
            var part = new T[Count];
            Array.Copy(elements, start, part, 0, part.Length);
            return part;
        }

        /// <summary>The elements of any type as numbers; those beyond 2^53 are rounded.</summary>
        public double[] ToDoubles()
        {
            var numbers = new double[Count];
            for (int i = 0; i < numbers.Length; i++) numbers[i] = Number(i);
            return numbers;
        }

        /// <summary>The mean of all elements, such as a batch's loss; NaN if there are none.</summary>
        public double Mean()
        {
            double sum = 0;
            int count = Count;
            for (int i = 0; i < count; i++) sum += Number(i);
            return sum / count;
        }

        private double Number(int place)
        {
            switch (DType)
            {
                case DType.Float32: return ((float[])elements)[start + place];
                case DType.Float16: return Half(((ushort[])elements)[start + place]);
                case DType.BFloat16:
                    int bits = ((ushort[])elements)[start + place] << 16;
                    return BitConverter.ToSingle(BitConverter.GetBytes(bits), 0);
                default: return Convert.ToDouble(elements.GetValue(start + place));
            }
        }

        /// <summary>The number that the bits of IEEE 754's binary16 mean.</summary>
        private static double Half(ushort bits)
        {
            int exponent = (bits >> 10) & 31, fraction = bits & 1023;
            double size = exponent == 31 ? (fraction == 0 ? double.PositiveInfinity : double.NaN)
                        : exponent == 0 ? fraction * Math.Pow(2, -24)
                        : (fraction | 1024) * Math.Pow(2, exponent - 25);
            return (bits & 0x8000) != 0 ? -size : size;
        }

        /// <summary>Such as "images: Float32(8, 20)".</summary>
        public override string ToString()
        {
            return (Name == null ? "" : Name + ": ") + DType + Text(shape);
        }

        private static string Text(long[] shape)
        {
            return "(" + string.Join(", ", shape) + ")";
        }

        /// <summary>The array, and the offset of its first element used, in bytes.</summary>
        internal Array Elements => elements;

        internal int Offset => start * Marshal.SizeOf(TypeOf(DType));
    }
}
