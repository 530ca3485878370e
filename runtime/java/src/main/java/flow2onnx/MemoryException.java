package flow2onnx;

/** No memory left. */
public final class MemoryException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    MemoryException(String message, String hint) {
        super(message, hint);
    }
}
