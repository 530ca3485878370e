package flow2onnx;

/** Arrays that do not fit a model's inputs. */
public final class FeedException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    FeedException(String message, String hint) {
        super(message, hint);
    }
}
