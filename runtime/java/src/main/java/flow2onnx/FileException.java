package flow2onnx;

/** A file that cannot be written. */
public final class FileException extends Flow2OnnxException {
    private static final long serialVersionUID = 1;

    FileException(String message, String hint) {
        super(message, hint);
    }
}
