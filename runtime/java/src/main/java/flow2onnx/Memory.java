package flow2onnx;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.Charset;

/** Native memory as Java sees it: addresses, views, texts that end in a zero. */
final class Memory {
    private static final Charset UTF_8 = Charset.forName("UTF-8");
    private static final int POINTER_BYTES;

    static {
        Native.dtypeSize(0); // which loads the library
        POINTER_BYTES = pointerBytes();
    }

    private Memory() {}

    static native long address(Buffer buffer);

    private static native ByteBuffer view(long address, long bytes);

    private static native byte[] bytes(long address);

    private static native int pointerBytes();

    static ByteBuffer allocate(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    /** The memory itself; whoever keeps the view sees to it that the memory stays. */
    static ByteBuffer viewOf(long address, long bytes) {
        if (bytes > Integer.MAX_VALUE) {
            throw new MemoryException(
                    bytes + " bytes are more than one buffer of Java holds",
                    "read the tensors one by one, each of less than 2 GiB");
        }
        return view(address, bytes).order(ByteOrder.nativeOrder());
    }

    /** The text at an address; null at 0. */
    static String textAt(long address) {
        return address == 0 ? null : new String(bytes(address), UTF_8);
    }

    /** The text that begins at an offset, up to its zero or the buffer's end. */
    static String textIn(ByteBuffer buffer, int offset) {
        int end = offset;
        while (end < buffer.limit() && buffer.get(end) != 0) {
            end++;
        }
        byte[] found = new byte[end - offset];
        ByteBuffer from = buffer.duplicate();
        from.position(offset);
        from.get(found);
        return new String(found, UTF_8);
    }

    /** UTF-8 with a zero behind it; a text that C cannot hold is an {@link OptionsException}. */
    static byte[] encoded(String text) {
        try {
            ByteBuffer found = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[found.remaining() + 1];
            found.get(bytes, 0, bytes.length - 1);
            if (text.indexOf('\0') < 0) {
                return bytes;
            }
        } catch (CharacterCodingException error) {
            throw unfit(text); // half a surrogate pair
        }
        throw unfit(text);
    }

    private static OptionsException unfit(String text) {
        return new OptionsException(
                "the text \"" + text + "\" holds a zero or half a character",
                "give names and paths of whole characters");
    }

    static void putPointer(ByteBuffer into, int offset, long value) {
        if (POINTER_BYTES == 8) {
            into.putLong(offset, value);
        } else {
            into.putInt(offset, (int) value);
        }
    }

    /** A pointer or a size. */
    static long pointerAt(ByteBuffer from, int offset) {
        return POINTER_BYTES == 8 ? from.getLong(offset) : from.getInt(offset) & 0xffffffffL;
    }

    static int pointerBytesOf(int count) {
        return count * POINTER_BYTES;
    }
}
