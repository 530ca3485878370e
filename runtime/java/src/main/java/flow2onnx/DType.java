package flow2onnx;

import java.util.Locale;

/** An element type. float16 and bfloat16 are handled as their bits. */
public enum DType {
    FLOAT32(Native.FLOAT32, 4),
    UINT8(Native.UINT8, 1),
    INT8(Native.INT8, 1),
    UINT16(Native.UINT16, 2),
    INT16(Native.INT16, 2),
    INT32(Native.INT32, 4),
    INT64(Native.INT64, 8),
    BOOL(Native.BOOL, 1),
    FLOAT16(Native.FLOAT16, 2),
    FLOAT64(Native.FLOAT64, 8),
    UINT32(Native.UINT32, 4),
    UINT64(Native.UINT64, 8),
    BFLOAT16(Native.BFLOAT16, 2);

    private static final DType[] BY_CODE = new DType[17];

    static {
        for (DType dtype : values()) {
            BY_CODE[dtype.code] = dtype;
        }
    }

    final int code;
    private final int bytes;

    DType(int code, int bytes) {
        this.code = code;
        this.bytes = bytes;
    }

    /** Bytes of one element. */
    public int bytes() {
        return bytes;
    }

    /** Such as {@code float32}, as bundles write it. */
    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }

    static DType of(int code) {
        return BY_CODE[code];
    }
}
