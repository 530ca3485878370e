package flow2onnx;

/** How far ONNX Runtime rewrites a model when it is opened. */
public enum Optimization {
    ALL(Native.OPTIMIZE_ALL),
    EXTENDED(Native.OPTIMIZE_EXTENDED),
    BASIC(Native.OPTIMIZE_BASIC),
    NONE(Native.OPTIMIZE_NONE);

    final int code;

    Optimization(int code) {
        this.code = code;
    }
}
