package flow2onnx;

import java.io.File;

/** Loads the native half, {@code libflow2onnx_jni}. */
final class Library {
    private Library() {}

    /**
     * Load the file that the property {@code flow2onnx.library} names, or else by the rules of the
     * virtual machine: on Android from the package, on desktops from {@code java.library.path}.
     */
    static void load() {
        String path = System.getProperty("flow2onnx.library");
        try {
            if (path == null) {
                System.loadLibrary("flow2onnx_jni");
            } else {
                System.load(new File(path).getAbsolutePath());
            }
        } catch (UnsatisfiedLinkError error) {
            String hint = "\nstart java with -Dflow2onnx.library=FILE or -Djava.library.path=FOLDER";
            UnsatisfiedLinkError told = new UnsatisfiedLinkError(error.getMessage() + hint);
            told.initCause(error);
            throw told;
        }
    }
}
