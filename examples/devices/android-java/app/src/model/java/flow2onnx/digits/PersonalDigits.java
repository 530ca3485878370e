package flow2onnx.digits;

import flow2onnx.Safetensors;
import flow2onnx.StoppedException;
import flow2onnx.Tensor;
import flow2onnx.Trainer;
import java.io.File;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.Map;

/**
 * A model of digits that learns the hand of the device's owner. What it was shown lies in {@code
 * shown.safetensors}, what it has learnt in {@code state.safetensors}; nothing leaves the device.
 */
public final class PersonalDigits implements AutoCloseable {
    private static final int BATCH = 16;
    private static final int PIXELS = 8 * 8;
    private static final int MOST = 1024; // examples that are kept, the latest

    private final Trainer trainer;
    private final File shown;
    private final File state;

    /** Open the bundle in a folder; examples and state are in another, or will be. */
    public PersonalDigits(File bundle, File folder) {
        shown = new File(folder, "shown.safetensors");
        state = new File(folder, "state.safetensors");
        trainer = Trainer.open(bundle.getPath());
        reload();
    }

    /** Take over what was learnt elsewhere since, such as in the background. */
    public void reload() {
        if (state.exists()) {
            trainer.load(state.getPath());
        }
    }

    /** Remember an image, 64 numbers from 0 to 1 row by row, and the digit that it shows. */
    public void collect(float[] pixels, int digit) {
        int first = 0;
        int count = 0;
        FloatBuffer images = FloatBuffer.allocate(MOST * PIXELS);
        IntBuffer labels = IntBuffer.allocate(MOST);
        if (shown.exists()) {
            Map<String, Tensor> earlier = Safetensors.load(shown.getPath());
            count = earlier.get("labels").count();
            first = Math.max(0, count + 1 - MOST);
            FloatBuffer kept = earlier.get("images").floats();
            kept.position(first * PIXELS);
            images.put(kept);
            IntBuffer digits = earlier.get("labels").ints();
            digits.position(first);
            labels.put(digits);
        }
        images.put(pixels).flip();
        labels.put(digit).flip();
        long examples = count - first + 1;
        Safetensors.save(
                shown.getPath(),
                Tensor.of(images, examples, PIXELS).named("images"),
                Tensor.of(labels, examples).named("labels"));
    }

    /**
     * Learn all examples so often; the mean loss of the last time, or NaN without a full batch. If
     * it was stopped, it is an InterruptedException, and the state saved is that of the last time.
     */
    public double train(int times) throws InterruptedException {
        try {
            return shown.exists() ? trainOn(Safetensors.load(shown.getPath()), times) : Double.NaN;
        } catch (StoppedException stopped) {
            throw new InterruptedException(stopped.getMessage());
        }
    }

    private double trainOn(Map<String, Tensor> examples, int times) {
        double loss = Double.NaN;
        int batches = examples.get("labels").count() / BATCH;
        for (int time = 0; time < times && batches > 0; time++) {
            loss = 0;
            for (int batch = 0; batch < batches; batch++) {
                FloatBuffer images = examples.get("images").floats();
                images.position(batch * BATCH * PIXELS).limit((batch + 1) * BATCH * PIXELS);
                IntBuffer labels = examples.get("labels").ints();
                labels.position(batch * BATCH).limit((batch + 1) * BATCH);
                loss += step(Tensor.of(images, BATCH, 1, 8, 8), Tensor.of(labels, BATCH)) / batches;
            }
            trainer.save(state.getPath());
        }
        return loss;
    }

    private double step(Tensor images, Tensor labels) {
        return trainer.step(images, labels).values().iterator().next().mean();
    }

    /** The digit that an image shows. */
    public int predict(float[] pixels) {
        Map<String, Tensor> results = trainer.predict(Tensor.of(pixels, 1, 1, 8, 8));
        FloatBuffer chances = results.values().iterator().next().floats();
        int best = 0;
        for (int digit = 1; digit < 10; digit++) {
            best = chances.get(digit) > chances.get(best) ? digit : best;
        }
        return best;
    }

    /** The steps made so far. */
    public long steps() {
        return trainer.steps();
    }

    /** From any thread: end the training under way. */
    public void stop() {
        trainer.stop(true);
    }

    @Override
    public void close() {
        trainer.close();
    }
}
