package flow2onnx;

/** A run that was stopped. */
public final class StoppedException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    StoppedException(String message, String hint) {
        super(message, hint);
    }
}
