package flow2onnx.digits;

import java.io.File;

/** The model of digits, in C++: personal_digits.hpp says what the methods do. */
public final class PersonalDigits implements AutoCloseable {
    static {
        System.loadLibrary("digits");
    }

    private volatile long handle; // 0 once it is closed

    /** Open the bundle in a folder; examples and state are in another, or will be. */
    public PersonalDigits(File bundle, File folder) {
        handle = open(bundle.getPath(), folder.getPath());
    }

    private long open() {
        if (handle == 0) {
            throw new IllegalStateException("these digits are closed\n  open them again");
        }
        return handle;
    }

    public synchronized void reload() {
        reload(open());
    }

    public synchronized void collect(float[] pixels, int digit) {
        collect(open(), pixels, digit);
    }

    public synchronized double train(int times) throws InterruptedException {
        return train(open(), times);
    }

    public synchronized int predict(float[] pixels) {
        return predict(open(), pixels);
    }

    public synchronized long steps() {
        return steps(open());
    }

    /** From any thread: end the training under way. */
    public void stop() {
        stop(open());
    }

    @Override
    public synchronized void close() {
        if (handle != 0) {
            close(handle);
            handle = 0;
        }
    }

    private static native long open(String bundle, String folder);

    private static native void reload(long digits);

    private static native void collect(long digits, float[] pixels, int digit);

    private static native double train(long digits, int times) throws InterruptedException;

    private static native int predict(long digits, float[] pixels);

    private static native long steps(long digits);

    private static native void stop(long digits);

    private static native void close(long digits);
}
