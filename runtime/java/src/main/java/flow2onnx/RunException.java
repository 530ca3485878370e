package flow2onnx;

/** A model that was opened but could not be run on these values. */
public final class RunException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    RunException(String message, String hint) {
        super(message, hint);
    }
}
