package flow2onnx;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** A model file, or a predict job of a bundle; called by any number of threads at once. */
public final class Predictor implements AutoCloseable {
    // Runs share the lock, closing has it alone: it waits for the runs that have begun.
    private final ReadWriteLock lock = new ReentrantReadWriteLock();
    private final ConcurrentLinkedQueue<Frame> frames = new ConcurrentLinkedQueue<Frame>();
    private final List<Spec> feeds;
    private final List<Spec> results;
    private volatile long handle; // 0 once it is closed

    private Predictor(Frame frame, long handle) {
        this.handle = handle;
        feeds = Spec.listAt(Native.predictorFeeds(handle, frame.out()), frame.outValue());
        results = Spec.listAt(Native.predictorResults(handle, frame.out()), frame.outValue());
        frames.add(frame);
    }

    /** Open a model, or the first predict job of a bundle, with the usual options. */
    public static Predictor open(String modelOrBundle) {
        return open(modelOrBundle, null, new Options());
    }

    /** Open a model (without a job), or a predict job of a bundle (null: the first). */
    public static Predictor open(String modelOrBundle, String job, Options options) {
        Objects.requireNonNull(modelOrBundle, "a model's file or a bundle's folder");
        Objects.requireNonNull(options, "options");
        Frame frame = new Frame();
        boolean opened = false;
        try {
            frame.begin();
            long path = frame.text(modelOrBundle);
            long name = frame.text(job);
            long chosen = options.in(frame);
            frame.check(Native.predictorOpen(path, name, chosen, frame.out(), frame.error()));
            Predictor predictor = new Predictor(frame, frame.outValue());
            opened = true;
            return predictor;
        } finally {
            if (!opened) {
                frame.close();
            }
        }
    }

    /** What it reads. */
    public List<Spec> feeds() {
        return feeds;
    }

    /** What it gives. */
    public List<Spec> results() {
        return results;
    }

    /** The results, copies of the caller's own; feeds come by place or by name, each once. */
    public Map<String, Tensor> run(Tensor... given) {
        lock.readLock().lock();
        try {
            checkOpen();
            Frame spare = frames.poll();
            Frame frame = spare == null ? new Frame() : spare;
            try {
                return run(frame, given);
            } finally {
                frames.add(frame);
            }
        } finally {
            lock.readLock().unlock();
        }
    }

    /**
     * While stopped, runs of any thread end soon, or do not begin, with a {@link StoppedException};
     * false lets them begin again.
     */
    public void stop(boolean stopped) {
        lock.readLock().lock();
        try {
            checkOpen();
            Native.predictorStop(handle, stopped);
        } finally {
            lock.readLock().unlock();
        }
    }

    private void checkOpen() {
        if (handle == 0) {
            throw new IllegalStateException("this predictor is closed\nopen the model again");
        }
    }

    private Map<String, Tensor> run(Frame frame, Tensor[] given) {
        frame.begin();
        long tensors = frame.tensors(given);
        frame.check(
                Native.predictorRun(handle, tensors, given.length, frame.results(), frame.error()));
        return frame.copyResults();
    }

    /** Free all that it holds, once the runs that have begun are done. */
    @Override
    public void close() {
        lock.writeLock().lock();
        try {
            if (handle != 0) {
                Native.predictorClose(handle);
                handle = 0;
                for (Frame frame = frames.poll(); frame != null; frame = frames.poll()) {
                    frame.close();
                }
            }
        } finally {
            lock.writeLock().unlock();
        }
    }
}
