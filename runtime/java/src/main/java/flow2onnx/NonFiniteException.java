package flow2onnx;

/** A loss that is NaN or infinite while finite losses are asked for. */
public final class NonFiniteException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    NonFiniteException(String message, String hint) {
        super(message, hint);
    }
}
