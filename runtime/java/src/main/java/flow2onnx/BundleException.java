package flow2onnx;

/** A bundle, model or state file that is not what the contract asks for. */
public final class BundleException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    BundleException(String message, String hint) {
        super(message, hint);
    }
}
