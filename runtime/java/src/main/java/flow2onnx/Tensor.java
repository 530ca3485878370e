package flow2onnx;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * A tensor in native memory, in C order. What is made of a direct buffer in the machine's byte order
 * is that memory, from the buffer's position to its limit; of anything else it is a copy. A feed
 * without a name is the one that stands at its place.
 */
public final class Tensor {
    private final String name;
    private final byte[] encodedName;
    private final DType dtype;
    private final long[] shape;
    private final ByteBuffer bytes; // null where the user's buffer is of another kind
    private final Buffer elements; // which then is this one
    private final long address;

    private Tensor(
            String name, DType dtype, long[] shape, ByteBuffer bytes, Buffer elements, long address) {
        this.name = name;
        this.encodedName = name == null ? null : Memory.encoded(name);
        this.dtype = dtype;
        this.shape = shape;
        this.bytes = bytes;
        this.elements = elements;
        this.address = address;
    }

    // ---- Making -----------------------------------------------------------------------------

    /** A float32 tensor of a copy. Without sizes it is a single number. */
    public static Tensor of(float[] values, long... shape) {
        return of(FloatBuffer.wrap(values), shape);
    }

    /** A float64 tensor of a copy. */
    public static Tensor of(double[] values, long... shape) {
        return of(DoubleBuffer.wrap(values), shape);
    }

    /** An int32 tensor of a copy. */
    public static Tensor of(int[] values, long... shape) {
        return of(IntBuffer.wrap(values), shape);
    }

    /** An int64 tensor of a copy. */
    public static Tensor of(long[] values, long... shape) {
        return of(LongBuffer.wrap(values), shape);
    }

    /** A float32 tensor. */
    public static Tensor of(FloatBuffer values, long... shape) {
        if (isUsable(values, values.order())) {
            return in(DType.FLOAT32, values.slice(), shape);
        }
        ByteBuffer copy = room(DType.FLOAT32, values.remaining());
        copy.asFloatBuffer().put(values.duplicate());
        return of(DType.FLOAT32, copy, shape);
    }

    /** A float64 tensor. */
    public static Tensor of(DoubleBuffer values, long... shape) {
        if (isUsable(values, values.order())) {
            return in(DType.FLOAT64, values.slice(), shape);
        }
        ByteBuffer copy = room(DType.FLOAT64, values.remaining());
        copy.asDoubleBuffer().put(values.duplicate());
        return of(DType.FLOAT64, copy, shape);
    }

    /** An int32 tensor. */
    public static Tensor of(IntBuffer values, long... shape) {
        if (isUsable(values, values.order())) {
            return in(DType.INT32, values.slice(), shape);
        }
        ByteBuffer copy = room(DType.INT32, values.remaining());
        copy.asIntBuffer().put(values.duplicate());
        return of(DType.INT32, copy, shape);
    }

    /** An int64 tensor. */
    public static Tensor of(LongBuffer values, long... shape) {
        if (isUsable(values, values.order())) {
            return in(DType.INT64, values.slice(), shape);
        }
        ByteBuffer copy = room(DType.INT64, values.remaining());
        copy.asLongBuffer().put(values.duplicate());
        return of(DType.INT64, copy, shape);
    }

    /** A tensor of any type: its elements' bytes in the machine's order. */
    public static Tensor of(DType dtype, ByteBuffer bytes, long... shape) {
        ByteBuffer memory = bytes.slice();
        if (!bytes.isDirect()) {
            memory = Memory.allocate(bytes.remaining());
            memory.put(bytes.duplicate());
            memory.position(0);
        }
        memory.order(ByteOrder.nativeOrder());
        checkSize(dtype, shape, memory.remaining());
        return new Tensor(null, dtype, shape.clone(), memory, null, Memory.address(memory));
    }

    /** The same memory under a name. */
    public Tensor named(String newName) {
        return new Tensor(newName, dtype, shape, bytes, elements, address);
    }

    /** One place on the first axis, such as one batch of many, in the same memory. */
    public Tensor row(int index) {
        if (shape.length == 0 || index < 0 || index >= shape[0]) {
            throw new IndexOutOfBoundsException(this + " has no row " + index);
        }
        long[] inner = Arrays.copyOfRange(shape, 1, shape.length);
        int size = (int) bytesOf(dtype, inner);
        if (bytes == null) {
            int count = size / dtype.bytes();
            return in(dtype, part(elements, index * count, count), inner).named(name);
        }
        ByteBuffer row = bytes.duplicate();
        row.position(index * size);
        row.limit((index + 1) * size);
        return of(dtype, row, inner).named(name);
    }

    private static Buffer part(Buffer elements, int start, int count) {
        Buffer part = duplicate(elements);
        part.position(start);
        part.limit(start + count);
        if (part instanceof FloatBuffer) {
            return ((FloatBuffer) part).slice();
        }
        if (part instanceof DoubleBuffer) {
            return ((DoubleBuffer) part).slice();
        }
        return part instanceof IntBuffer ? ((IntBuffer) part).slice() : ((LongBuffer) part).slice();
    }

    // Buffer has neither duplicate() nor slice() before Java 9.
    private static Buffer duplicate(Buffer elements) {
        if (elements instanceof FloatBuffer) {
            return ((FloatBuffer) elements).duplicate();
        }
        if (elements instanceof DoubleBuffer) {
            return ((DoubleBuffer) elements).duplicate();
        }
        return elements instanceof IntBuffer
                ? ((IntBuffer) elements).duplicate()
                : ((LongBuffer) elements).duplicate();
    }

    private static boolean isUsable(Buffer values, ByteOrder order) {
        return values.isDirect() && order == ByteOrder.nativeOrder();
    }

    private static ByteBuffer room(DType dtype, int count) {
        return Memory.allocate(Math.multiplyExact(count, dtype.bytes()));
    }

    private static Tensor in(DType dtype, Buffer elements, long[] shape) {
        checkSize(dtype, shape, (long) elements.remaining() * dtype.bytes());
        return new Tensor(null, dtype, shape.clone(), null, elements, Memory.address(elements));
    }

    private static void checkSize(DType dtype, long[] shape, long got) {
        long wanted = bytesOf(dtype, shape);
        if (wanted != got) {
            throw new FeedException(
                    dtype + " of shape " + Arrays.toString(shape) + " has " + wanted
                            + " bytes, but there are " + got,
                    "give as many elements as the product of the sizes");
        }
    }

    /** The bytes of a tensor; a negative size and more than 2 GiB are refused. */
    static long bytesOf(DType dtype, long[] shape) {
        long count = 1;
        boolean isEmpty = false;
        for (long size : shape) {
            if (size < 0) {
                throw new FeedException(
                        "the shape " + Arrays.toString(shape) + " has a negative size",
                        "give the sizes of what is in memory");
            }
            isEmpty |= size == 0;
            count = size == 0 ? count : multiply(count, size);
        }
        if (isEmpty) {
            return 0;
        }
        if (multiply(count, dtype.bytes()) > Integer.MAX_VALUE) {
            throw new MemoryException(
                    dtype + " of shape " + Arrays.toString(shape) + " does not fit a buffer of Java",
                    "use tensors of less than 2 GiB");
        }
        return count * dtype.bytes();
    }

    /** The product, or the largest number where it is beyond that. */
    private static long multiply(long a, long b) {
        return a > Long.MAX_VALUE / b ? Long.MAX_VALUE : a * b;
    }

    // ---- Reading ----------------------------------------------------------------------------

    /** The name; null if it has none. */
    public String name() {
        return name;
    }

    public DType dtype() {
        return dtype;
    }

    public long[] shape() {
        return shape.clone();
    }

    public int rank() {
        return shape.length;
    }

    /** The size of one axis. */
    public long size(int axis) {
        return shape[axis];
    }

    /** The number of elements. */
    public int count() {
        return (int) (bytesOf(dtype, shape) / dtype.bytes());
    }

    /** The elements of a float32 tensor, in its memory. */
    public FloatBuffer floats() {
        expect(dtype == DType.FLOAT32, "float32");
        return bytes == null ? ((FloatBuffer) elements).duplicate() : bytes.asFloatBuffer();
    }

    /** The elements of a float64 tensor, in its memory. */
    public DoubleBuffer doubles() {
        expect(dtype == DType.FLOAT64, "float64");
        return bytes == null ? ((DoubleBuffer) elements).duplicate() : bytes.asDoubleBuffer();
    }

    /** The elements of an int32 or uint32 tensor, in its memory. */
    public IntBuffer ints() {
        expect(dtype == DType.INT32 || dtype == DType.UINT32, "int32 or uint32");
        return bytes == null ? ((IntBuffer) elements).duplicate() : bytes.asIntBuffer();
    }

    /** The elements of an int64 or uint64 tensor, in its memory. */
    public LongBuffer longs() {
        expect(dtype == DType.INT64 || dtype == DType.UINT64, "int64 or uint64");
        return bytes == null ? ((LongBuffer) elements).duplicate() : bytes.asLongBuffer();
    }

    /** The elements of two bytes, float16 and bfloat16 as their bits, in the tensor's memory. */
    public ShortBuffer shorts() {
        expect(dtype.bytes() == 2, "of two bytes");
        return bytes.asShortBuffer();
    }

    /** The elements of one byte, bool as 0 and 1, in the tensor's memory. */
    public ByteBuffer bytes() {
        expect(dtype.bytes() == 1, "of one byte");
        return bytes.duplicate();
    }

    private void expect(boolean fits, String wanted) {
        if (!fits) {
            throw new IllegalStateException(
                    (name == null ? "a tensor" : name) + " is " + dtype + ", not " + wanted
                            + "\nuse the method of its type, or toDoubles()");
        }
    }

    /** The elements of any type as numbers; those beyond 2^53 are rounded. */
    public double[] toDoubles() {
        double[] numbers = new double[count()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = number(i);
        }
        return numbers;
    }

    /** The mean of all elements, such as a batch's loss; NaN if there are none. */
    public double mean() {
        double sum = 0;
        int count = count();
        for (int i = 0; i < count; i++) {
            sum += number(i);
        }
        return sum / count;
    }

    private double number(int place) {
        switch (dtype) {
            case FLOAT32:
                return bytes == null ? ((FloatBuffer) elements).get(place) : bytes.getFloat(4 * place);
            case FLOAT64:
                return bytes == null
                        ? ((DoubleBuffer) elements).get(place)
                        : bytes.getDouble(8 * place);
            case INT32:
                return bytes == null ? ((IntBuffer) elements).get(place) : bytes.getInt(4 * place);
            case INT64:
                return bytes == null ? ((LongBuffer) elements).get(place) : bytes.getLong(8 * place);
            case UINT32:
                return bytes.getInt(4 * place) & 0xffffffffL;
            case UINT64:
                long whole = bytes.getLong(8 * place);
                // As signed, halved with its last bit kept so that it is rounded the right way.
                return whole >= 0 ? whole : 2.0 * ((whole >>> 1) | (whole & 1));
            case INT16:
                return bytes.getShort(2 * place);
            case UINT16:
                return bytes.getShort(2 * place) & 0xffff;
            case FLOAT16:
                return half(bytes.getShort(2 * place));
            case BFLOAT16:
                return Float.intBitsToFloat(bytes.getShort(2 * place) << 16);
            case INT8:
                return bytes.get(place);
            default: // UINT8, BOOL
                return bytes.get(place) & 0xff;
        }
    }

    /** The number that the bits of IEEE 754's binary16 mean. */
    private static double half(short bits) {
        int exponent = (bits >> 10) & 31;
        int fraction = bits & 1023;
        double size;
        if (exponent == 31) {
            size = fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
        } else if (exponent == 0) {
            size = Math.scalb((double) fraction, -24);
        } else {
            size = Math.scalb((double) (fraction | 1024), exponent - 25);
        }
        return bits < 0 ? -size : size;
    }

    @Override
    public String toString() {
        return (name == null ? "" : name + ": ") + dtype + Arrays.toString(shape);
    }

    // ---- For calls --------------------------------------------------------------------------

    long address() {
        return address;
    }

    /** UTF-8 with a zero behind it; null without a name. */
    byte[] encodedName() {
        return encodedName;
    }

    /** The bytes of shape and name as a call passes them, in whole words. */
    int outerBytes() {
        return 8 * shape.length + (encodedName == null ? 0 : (encodedName.length + 7) / 8 * 8);
    }
}
