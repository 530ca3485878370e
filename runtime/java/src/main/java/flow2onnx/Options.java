package flow2onnx;

import java.nio.ByteBuffer;
import java.util.Objects;

/** How models are opened, on the CPU. Each method returns changed options and changes none. */
public final class Options {
    private final int threads;
    private final Optimization optimization;
    private final boolean finiteLosses;
    private final boolean ortFormat;
    private final String library;

    /** The usual choice: a thread for each core, every optimization. */
    public Options() {
        this(0, Optimization.ALL, false, false, null);
    }

    private Options(
            int threads,
            Optimization optimization,
            boolean finiteLosses,
            boolean ortFormat,
            String library) {
        this.threads = threads;
        this.optimization = optimization;
        this.finiteLosses = finiteLosses;
        this.ortFormat = ortFormat;
        this.library = library;
    }

    /** Threads of one operator; 0 is one for each core. */
    public Options threads(int value) {
        return new Options(value, optimization, finiteLosses, ortFormat, library);
    }

    /** How far models are rewritten. */
    public Options optimization(Optimization value) {
        Objects.requireNonNull(value, "an optimization");
        return new Options(threads, value, finiteLosses, ortFormat, library);
    }

    /** True: a step whose loss is not finite is refused and changes nothing. */
    public Options finiteLosses(boolean value) {
        return new Options(threads, optimization, value, ortFormat, library);
    }

    /** True: {@code x.ort} is opened in place of {@code x.onnx}. */
    public Options ortFormat(boolean value) {
        return new Options(threads, optimization, finiteLosses, value, library);
    }

    /**
     * The file of ONNX Runtime's library. Without it, that of the environment variable {@code
     * FLOW2ONNX_ORT_LIBRARY}, or one that the process has, as in an Android package, or the loader
     * finds.
     */
    public Options library(String value) {
        return new Options(threads, optimization, finiteLosses, ortFormat, value);
    }

    /** The address of these options as C reads them, in the frame's memory. */
    long in(Frame frame) {
        long path = frame.text(library);
        int place = frame.allocate(Native.OPTIONS_SIZE);
        ByteBuffer into = frame.memory();
        into.putInt(place + Native.OPTIONS_THREADS, threads);
        into.putInt(place + Native.OPTIONS_OPTIMIZATION, optimization.code);
        into.put(place + Native.OPTIONS_FINITE_LOSSES, (byte) (finiteLosses ? 1 : 0));
        into.put(place + Native.OPTIONS_ORT_FORMAT, (byte) (ortFormat ? 1 : 0));
        Memory.putPointer(into, place + Native.OPTIONS_LIBRARY, path);
        return frame.address(place);
    }
}
