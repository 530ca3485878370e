package flow2onnx;

/**
 * Whatever the runtime refuses. The message says what was asked and what was got, and on a second
 * line what to do; a refusal changes nothing.
 */
public abstract class Flow2OnnxException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final String hint;

    Flow2OnnxException(String message, String hint) {
        super(hint.isEmpty() ? message : message + "\n  " + hint);
        this.hint = hint;
    }

    /** What to do; empty where nobody knows. */
    public String hint() {
        return hint;
    }

    /** The exception of a status of the C runtime, whose text has the hint on a second line. */
    static Flow2OnnxException of(int status, String text) {
        int end = text.indexOf('\n');
        String message = end < 0 ? text : text.substring(0, end);
        String hint = end < 0 ? "" : text.substring(end + 1).trim();
        switch (status) {
            case Native.BUNDLE_ERROR:
                return new BundleException(message, hint);
            case Native.STATE_ERROR:
                return new StateException(message, hint);
            case Native.FEED_ERROR:
                return new FeedException(message, hint);
            case Native.RUN_ERROR:
                return new RunException(message, hint);
            case Native.OPTIONS_ERROR:
                return new OptionsException(message, hint);
            case Native.NON_FINITE_ERROR:
                return new NonFiniteException(message, hint);
            case Native.FILE_ERROR:
                return new FileException(message, hint);
            case Native.MEMORY_ERROR:
                return new MemoryException(message, hint);
            case Native.RUNTIME_ERROR:
                return new MissingRuntimeException(message, hint);
            case Native.STOPPED_ERROR:
                return new StoppedException(message, hint);
            default:
                throw new AssertionError("the C runtime has a new status " + status);
        }
    }
}
