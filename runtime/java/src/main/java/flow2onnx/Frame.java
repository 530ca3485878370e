package flow2onnx;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The native memory of one call at a time: what it passes by address, its error, its results. What
 * was allocated stays until the next call begins.
 */
final class Frame {
    private static final int OUT = 0; // of one pointer or size
    private static final int ERROR = 8;
    private static final int RESULTS = (ERROR + Native.ERROR_SIZE + 7) / 8 * 8;

    private final ByteBuffer fixed = Memory.allocate(RESULTS + Native.TENSORS_SIZE);
    private final long fixedAddress = Memory.address(fixed);
    private final List<ByteBuffer> outgrown = new ArrayList<ByteBuffer>();
    private ByteBuffer memory;
    private long memoryAddress;
    private int used;
    private Tensor[] held; // their memory is read by the call: they must not be garbage before
    private ByteBuffer block; // what the results were copied into
    private long blockAddress;

    Frame() {
        replaceMemory(1024);
    }

    // ---- What a call passes -----------------------------------------------------------------

    void begin() {
        used = 0;
        outgrown.clear();
    }

    /** The offset of so many zero bytes in {@link #memory}, a multiple of 8. */
    int allocate(int bytes) {
        int rounded = Math.addExact(bytes, 7) / 8 * 8;
        if (rounded > memory.capacity() - used) {
            outgrown.add(memory);
            replaceMemory(Math.max(rounded, 2 * Math.min(memory.capacity(), 1 << 29)));
        }
        int place = used;
        used += rounded;
        for (int i = place; i < used; i += 8) {
            memory.putLong(i, 0);
        }
        return place;
    }

    private void replaceMemory(int bytes) {
        memory = Memory.allocate(bytes);
        memoryAddress = Memory.address(memory);
        used = 0;
    }

    ByteBuffer memory() {
        return memory;
    }

    long address(int place) {
        return memoryAddress + place;
    }

    /** A text as C reads it; 0 for null. */
    long text(String text) {
        if (text == null) {
            return 0;
        }
        byte[] bytes = Memory.encoded(text);
        int place = allocate(bytes.length);
        put(place, bytes);
        return address(place);
    }

    /** An array of texts. */
    long texts(String[] texts) {
        long[] addresses = new long[texts.length];
        for (int i = 0; i < texts.length; i++) {
            addresses[i] = text(notNull(texts[i], i));
        }
        int place = allocate(Memory.pointerBytesOf(texts.length));
        for (int i = 0; i < texts.length; i++) {
            Memory.putPointer(memory, place + Memory.pointerBytesOf(i), addresses[i]);
        }
        return address(place);
    }

    /** An array of tensors, whose memory is used where it is. */
    long tensors(Tensor[] tensors) {
        held = tensors.clone();
        int bytes = held.length * Native.TENSOR_SIZE;
        for (int i = 0; i < held.length; i++) {
            bytes = Math.addExact(bytes, notNull(held[i], i).outerBytes());
        }
        int place = allocate(bytes);
        int behind = place + held.length * Native.TENSOR_SIZE;
        for (int i = 0; i < held.length; i++) {
            behind = putTensor(held[i], place + i * Native.TENSOR_SIZE, behind);
        }
        return address(place);
    }

    /** Put a tensor at a place, its shape and name behind; where these end. */
    private int putTensor(Tensor tensor, int place, int behind) {
        memory.putInt(place + Native.TENSOR_DTYPE, tensor.dtype().code);
        Memory.putPointer(memory, place + Native.TENSOR_RANK, tensor.rank());
        Memory.putPointer(memory, place + Native.TENSOR_SHAPE, address(behind));
        Memory.putPointer(memory, place + Native.TENSOR_DATA, tensor.address());
        int end = behind;
        for (int axis = 0; axis < tensor.rank(); axis++, end += 8) {
            memory.putLong(end, tensor.size(axis));
        }
        byte[] name = tensor.encodedName();
        if (name != null) {
            Memory.putPointer(memory, place + Native.TENSOR_NAME, address(end));
            put(end, name);
            end += (name.length + 7) / 8 * 8;
        }
        return end;
    }

    private void put(int place, byte[] bytes) {
        ByteBuffer into = memory.duplicate();
        into.position(place);
        into.put(bytes);
    }

    private static <T> T notNull(T value, int place) {
        if (value == null) {
            throw new NullPointerException("number " + place + " of those given is null");
        }
        return value;
    }

    // ---- What a call answers ----------------------------------------------------------------

    /** The address at which a call leaves a pointer or a size. */
    long out() {
        return fixedAddress + OUT;
    }

    long outValue() {
        return Memory.pointerAt(fixed, OUT);
    }

    long error() {
        return fixedAddress + ERROR;
    }

    long results() {
        return fixedAddress + RESULTS;
    }

    /** Return if the status says so; else throw what the error says. */
    void check(int status) {
        held = null;
        if (status != Native.OK) {
            int place = ERROR + Native.ERROR_MESSAGE;
            ByteBuffer error = fixed.duplicate();
            error.limit(ERROR + Native.ERROR_SIZE);
            throw Flow2OnnxException.of(status, Memory.textIn(error, place));
        }
    }

    /** Copies of the results, in their order. */
    Map<String, Tensor> copyResults() {
        int count = (int) Memory.pointerAt(fixed, RESULTS + Native.TENSORS_COUNT);
        long items = Memory.pointerAt(fixed, RESULTS + Native.TENSORS_ITEMS);
        Map<String, Tensor> found = new LinkedHashMap<String, Tensor>(2 * count);
        viewBlock();
        for (int i = 0; i < count; i++) {
            Tensor tensor = copyOf(at(items + (long) i * Native.TENSOR_SIZE, Native.TENSOR_SIZE));
            found.put(tensor.name(), tensor);
        }
        return found;
    }

    private Tensor copyOf(ByteBuffer item) {
        long name = Memory.pointerAt(item, Native.TENSOR_NAME);
        int rank = (int) Memory.pointerAt(item, Native.TENSOR_RANK);
        ByteBuffer sizes = at(Memory.pointerAt(item, Native.TENSOR_SHAPE), 8L * rank);
        long[] shape = new long[rank];
        for (int axis = 0; axis < rank; axis++) {
            shape[axis] = sizes.getLong(8 * axis);
        }
        DType dtype = DType.of(item.getInt(Native.TENSOR_DTYPE));
        long bytes = Tensor.bytesOf(dtype, shape);
        ByteBuffer data = at(Memory.pointerAt(item, Native.TENSOR_DATA), bytes);
        ByteBuffer copy = Memory.allocate((int) bytes);
        copy.put(data);
        copy.position(0);
        return Tensor.of(dtype, copy, shape).named(textAt(name));
    }

    private String textAt(long address) {
        boolean inBlock = block != null;
        return inBlock
                ? Memory.textIn(block, (int) (address - blockAddress))
                : Memory.textAt(address);
    }

    /** Look at the memory of the results, once for as long as it is the same. */
    private void viewBlock() {
        long address = Memory.pointerAt(fixed, RESULTS + Native.TENSORS_MEMORY);
        long capacity = Memory.pointerAt(fixed, RESULTS + Native.TENSORS_CAPACITY);
        if (capacity > Integer.MAX_VALUE) {
            block = null; // its tensors are looked at one by one
        } else if (block == null || address != blockAddress || capacity != block.capacity()) {
            block = capacity == 0 ? null : Memory.viewOf(address, capacity);
            blockAddress = address;
        }
    }

    private ByteBuffer at(long address, long bytes) {
        if (block == null) {
            return Memory.viewOf(address, bytes);
        }
        ByteBuffer part = block.duplicate();
        part.position((int) (address - blockAddress));
        part.limit((int) (address - blockAddress + bytes));
        return part.slice().order(block.order());
    }

    void close() {
        block = null;
        Native.tensorsFree(results());
    }
}
