package flow2onnx;

/** An option without meaning. */
public final class OptionsException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    OptionsException(String message, String hint) {
        super(message, hint);
    }
}
