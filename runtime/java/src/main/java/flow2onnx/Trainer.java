package flow2onnx;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A bundle's job with its state. Calls of one trainer take turns; a call that fails leaves the state
 * as it was. Results are copies of the caller's own.
 */
public final class Trainer implements AutoCloseable {
    private final Frame frame;
    private final State state;
    private final List<Spec> feeds;
    private final List<Spec> results;
    private final Object life = new Object(); // held to stop and to close, not to run
    private volatile long handle; // 0 once it is closed

    private Trainer(Frame frame, long handle) {
        this.frame = frame;
        this.handle = handle;
        feeds = Spec.listAt(Native.trainerFeeds(handle, frame.out()), frame.outValue());
        results = Spec.listAt(Native.trainerResults(handle, frame.out()), frame.outValue());
        state = new State(this, Native.trainerState(handle));
    }

    /** Open the bundle in a folder with the usual options. */
    public static Trainer open(String bundle) {
        return open(bundle, new Options());
    }

    /** Open the bundle in a folder. */
    public static Trainer open(String bundle, Options options) {
        Objects.requireNonNull(bundle, "the bundle's folder");
        Objects.requireNonNull(options, "options");
        Frame frame = new Frame();
        boolean opened = false;
        try {
            frame.begin();
            long path = frame.text(bundle);
            frame.check(Native.trainerOpen(path, options.in(frame), frame.out(), frame.error()));
            Trainer trainer = new Trainer(frame, frame.outValue());
            opened = true;
            return trainer;
        } finally {
            if (!opened) {
                frame.close();
            }
        }
    }

    /** Free all that it holds. Whatever is asked of it later is an IllegalStateException. */
    @Override
    public synchronized void close() {
        synchronized (life) {
            if (handle != 0) {
                Native.trainerClose(handle);
                frame.close();
                handle = 0;
            }
        }
    }

    /**
     * From any thread: while stopped, a run ends soon, or does not begin, with a {@link
     * StoppedException} and the state as it was; false lets runs begin again.
     */
    public void stop(boolean stopped) {
        synchronized (life) {
            Native.trainerStop(open(), stopped);
        }
    }

    Frame begin() {
        open();
        frame.begin();
        return frame;
    }

    private long open() {
        if (handle == 0) {
            throw new IllegalStateException("this trainer is closed\nopen the bundle again");
        }
        return handle;
    }

    // ---- Running ----------------------------------------------------------------------------

    /** What a step reads. */
    public List<Spec> feeds() {
        return feeds;
    }

    /** What a step gives. */
    public List<Spec> results() {
        return results;
    }

    /** One step; feeds come by place or by name, each once. */
    public synchronized Map<String, Tensor> step(Tensor... feeds) {
        long given = begin().tensors(feeds);
        frame.check(
                Native.trainerStep(handle, given, feeds.length, frame.results(), frame.error()));
        return frame.copyResults();
    }

    /** The results of a step that is not made. */
    public synchronized Map<String, Tensor> evaluate(Tensor... feeds) {
        long given = begin().tensors(feeds);
        frame.check(
                Native.trainerEvaluate(handle, given, feeds.length, frame.results(), frame.error()));
        return frame.copyResults();
    }

    /** Add up the gradients of a batch. */
    public synchronized Map<String, Tensor> accumulate(Tensor... feeds) {
        long given = begin().tensors(feeds);
        frame.check(
                Native.trainerAccumulate(
                        handle, given, feeds.length, frame.results(), frame.error()));
        return frame.copyResults();
    }

    /** Make one step of the mean of the gradients added up. */
    public synchronized void update() {
        begin();
        frame.check(Native.trainerUpdate(handle, frame.error()));
    }

    /** The batches added up since the last update. */
    public synchronized long accumulated() {
        return Native.trainerAccumulated(open());
    }

    /** The first predict job on the present state. */
    public Map<String, Tensor> predict(Tensor... feeds) {
        return predict(null, feeds);
    }

    /** A predict job on the present state. */
    public synchronized Map<String, Tensor> predict(String job, Tensor... feeds) {
        long name = begin().text(job);
        long given = frame.tensors(feeds);
        frame.check(
                Native.trainerPredict(
                        handle, name, given, feeds.length, frame.results(), frame.error()));
        return frame.copyResults();
    }

    // ---- The rate, what is frozen -----------------------------------------------------------

    /** The steps done. */
    public synchronized long steps() {
        return Native.trainerSteps(open());
    }

    /** The rate that overrides the schedule; below 0 while the schedule holds. */
    public synchronized double rate() {
        return Native.trainerRate(open());
    }

    /** Override the schedule. */
    public synchronized void setRate(double rate) {
        begin();
        frame.check(Native.trainerSetRate(handle, rate, frame.error()));
    }

    /** Give the rate back to the schedule. */
    public synchronized void useSchedule() {
        begin();
        frame.check(Native.trainerUseSchedule(handle, frame.error()));
    }

    /** Freeze these variables with their slots, and no others. */
    public synchronized void freeze(String... names) {
        long given = begin().texts(names);
        frame.check(Native.trainerFreeze(handle, given, names.length, frame.error()));
    }

    public synchronized boolean isFrozen(String variable) {
        Objects.requireNonNull(variable, "a variable's name");
        return Native.trainerIsFrozen(open(), begin().text(variable));
    }

    // ---- Files ------------------------------------------------------------------------------

    /** Write a file that appears whole or not at all, also when the process is killed. */
    public synchronized void save(String path) {
        Objects.requireNonNull(path, "a path");
        long given = begin().text(path);
        frame.check(Native.trainerSave(handle, given, frame.error()));
    }

    /** Go on from a saved state, bit for bit. */
    public synchronized void load(String path) {
        Objects.requireNonNull(path, "a path");
        long given = begin().text(path);
        frame.check(Native.trainerLoad(handle, given, frame.error()));
    }

    /**
     * Write the adapter that a bundle of adapters trains, as ONNX Runtime's file .onnx_adapter,
     * which appears whole or not at all.
     */
    public synchronized void exportAdapter(String path) {
        Objects.requireNonNull(path, "a path");
        long given = begin().text(path);
        frame.check(Native.trainerExportAdapter(handle, given, frame.error()));
    }

    /** Go on from an adapter of the same modules and ranks; the optimizer's slots stay. */
    public synchronized void loadAdapter(String path) {
        Objects.requireNonNull(path, "a path");
        long given = begin().text(path);
        frame.check(Native.trainerLoadAdapter(handle, given, frame.error()));
    }

    /** Export the first predict job with the present weights, for any ONNX Runtime. */
    public void exportPredict(String folder) {
        exportPredict(folder, null);
    }

    /** Export a predict job; the folder is missing, empty, or holds an earlier export. */
    public synchronized void exportPredict(String folder, String job) {
        Objects.requireNonNull(folder, "a folder");
        long given = begin().text(folder);
        long name = frame.text(job);
        frame.check(Native.trainerExportPredict(handle, given, name, frame.error()));
    }

    /** The trainer's tensors, which stay its own. */
    public State state() {
        return state;
    }
}
