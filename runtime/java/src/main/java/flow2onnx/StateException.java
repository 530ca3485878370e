package flow2onnx;

/** A value or request that does not fit the state. */
public final class StateException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    StateException(String message, String hint) {
        super(message, hint);
    }
}
