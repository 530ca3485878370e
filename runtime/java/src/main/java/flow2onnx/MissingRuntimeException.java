package flow2onnx;

/** An ONNX Runtime that is missing or too old. */
public final class MissingRuntimeException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    MissingRuntimeException(String message, String hint) {
        super(message, hint);
    }
}
