import flow2onnx.*;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.ArrayList;
import java.util.List;

/**
 * What Java has of its own: buffers, threads, closed objects. Its arguments are the conformance
 * bundle mlp, and a copy whose labels have a range.
 */
final class Checks {
    private static final Options ONE = new Options().threads(1);
    private static final float[] PIXELS = new float[8 * 20];
    private static final int[] LABELS = {0, 1, 2, 3, 4, 5, 6, 7};
    private static String bundle;
    private static int checks;

    private Checks() {}

    public static void main(String[] arguments) throws Exception {
        bundle = arguments[0];
        for (int i = 0; i < PIXELS.length; i++) {
            PIXELS[i] = i * i % 19 / 19f;
        }
        buffers();
        types();
        refusals();
        specs(arguments[1]);
        threads();
        garbage();
        closing();
        System.out.println(checks + " checks");
    }

    private static void check(boolean holds, String what) {
        checks++;
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static <E extends Throwable> E refused(Class<E> kind, Callable<?> call) {
        checks++;
        try {
            Object found = call.call();
            throw new AssertionError("no " + kind + " but " + found);
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("no " + kind, error);
        }
    }

    private static double loss(Tensor images, Tensor labels) {
        try (Trainer trainer = Trainer.open(bundle, ONE)) {
            return trainer.evaluate(images, labels).get("out/0").mean();
        }
    }

    /** Every kind of buffer is the same feed, and a direct one is not copied. */
    private static void buffers() {
        Tensor labels = Tensor.of(LABELS, 8);
        double wanted = loss(Tensor.of(PIXELS, 8, 20), labels);
        FloatBuffer direct = direct(4 * 200).asFloatBuffer();
        direct.position(13);
        direct.put(PIXELS);
        direct.limit(direct.position()).position(13);
        Tensor seen = Tensor.of(direct, 8, 20);
        ByteBuffer other = ByteBuffer.allocateDirect(4 * 160).order(ByteOrder.BIG_ENDIAN);
        other.asFloatBuffer().put(PIXELS);
        ByteBuffer raw = direct(4 * 160);
        raw.asFloatBuffer().put(PIXELS);
        check(loss(seen, labels) == wanted, "a direct buffer from a position on");
        check(loss(Tensor.of(other.asFloatBuffer(), 8, 20), labels) == wanted, "the other order");
        check(loss(Tensor.of(DType.FLOAT32, raw, 8, 20), labels) == wanted, "bytes");
        ByteBuffer readOnly = raw.asReadOnlyBuffer();
        check(loss(Tensor.of(DType.FLOAT32, readOnly, 8, 20), labels) == wanted, "read-only");
        FloatBuffer wrapped = FloatBuffer.wrap(PIXELS).asReadOnlyBuffer();
        check(loss(Tensor.of(wrapped, 8, 20), labels) == wanted, "a heap buffer");
        direct.put(13, 100);
        check(seen.floats().get(0) == 100, "the memory itself is seen");
        check(loss(seen, labels) != wanted, "and is read when the call is made");
        check(direct.position() == 13 && direct.remaining() == 160, "the buffer is as it was");
        IntBuffer rows = direct(4 * 6).asIntBuffer();
        rows.put(new int[] {1, 2, 3, 4, 5, 6}).flip();
        check(Tensor.of(rows, 3, 2).row(1).ints().get(1) == 4, "a row of a direct buffer");
        check(Tensor.of(LABELS, 2, 4).row(1).ints().get(0) == 4, "a row of an array");
        check(Tensor.of(new long[] {7}).longs().get() == 7, "a single number");
        check(Tensor.of(new double[0], 0, 3).count() == 0, "nothing");
    }

    private static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    private static void types() {
        short[] halves = {0x3c00, (short) 0xc000, 0x0001, 0x7c00, (short) 0x8000};
        ByteBuffer bits = direct(10);
        bits.asShortBuffer().put(halves);
        double[] wanted = {1, -2, Math.scalb(1.0, -24), Double.POSITIVE_INFINITY, -0.0};
        check(Arrays.equals(Tensor.of(DType.FLOAT16, bits, 5).toDoubles(), wanted), "float16");
        bits.asShortBuffer().put(new short[] {0x3f80, (short) 0xc000, 0, 0x7f80, (short) 0x8000});
        wanted[2] = 0;
        check(Arrays.equals(Tensor.of(DType.BFLOAT16, bits, 5).toDoubles(), wanted), "bfloat16");
        ByteBuffer ones = ByteBuffer.wrap(new byte[] {-1, -1, -1, -1, -1, -1, -1, -1});
        check(Tensor.of(DType.UINT8, ones, 8).toDoubles()[3] == 255, "uint8");
        check(Tensor.of(DType.INT8, ones, 8).toDoubles()[3] == -1, "int8");
        check(Tensor.of(DType.UINT16, ones, 4).toDoubles()[3] == 65535, "uint16");
        check(Tensor.of(DType.INT16, ones, 4).toDoubles()[3] == -1, "int16");
        check(Tensor.of(DType.UINT32, ones, 2).toDoubles()[1] == 4294967295.0, "uint32");
        check(Tensor.of(DType.UINT64, ones, 1).toDoubles()[0] == Math.scalb(1.0, 64), "uint64");
        check(DType.BFLOAT16.toString().equals("bfloat16"), "a name");
    }

    private static void refusals() {
        check(!refused(BundleException.class, () -> Trainer.open("none")).hint().isEmpty(), "hint");
        refused(OptionsException.class, () -> Trainer.open(bundle, new Options().threads(-1)));
        refused(OptionsException.class, () -> Trainer.open("a\0b"));
        refused(OptionsException.class, () -> Trainer.open("\ud83d"));
        refused(OptionsException.class, () -> Tensor.of(LABELS, 8).named("a\0"));
        refused(NullPointerException.class, () -> Trainer.open(null));
        refused(NullPointerException.class, () -> new Options().optimization(null));
        refused(FeedException.class, () -> Tensor.of(PIXELS, 8, 21));
        refused(FeedException.class, () -> Tensor.of(PIXELS, -8, -20));
        refused(FeedException.class, () -> Tensor.of(DType.FLOAT32, direct(4 * 160 + 1), 8, 20));
        refused(MemoryException.class, () -> Tensor.of(PIXELS, 1L << 62, 1L << 62));
        refused(IndexOutOfBoundsException.class, () -> Tensor.of(LABELS, 8).row(8));
        refused(IndexOutOfBoundsException.class, () -> Tensor.of(LABELS, 8).row(0).row(0));
        refused(IllegalStateException.class, () -> Tensor.of(LABELS, 8).floats());
        try (Trainer trainer = Trainer.open(bundle, ONE)) {
            refused(NullPointerException.class, () -> trainer.step(Tensor.of(PIXELS, 8, 20), null));
            refused(FeedException.class, () -> trainer.step());
            refused(StateException.class, () -> trainer.state().read("none"));
            State state = trainer.state();
            refused(StateException.class, () -> {
                state.write(Tensor.of(LABELS, 8));
                return "a tensor without a name";
            });
            refused(StateException.class, () -> {
                Safetensors.save("none.safetensors", Tensor.of(LABELS, 8));
                return "a tensor without a name";
            });
            check(trainer.steps() == 0, "nothing was done");
            check(trainer.state().read("hidden-bias").size() == 1, "one tensor by its name");
            check(!trainer.isFrozen("hidden-weight"), "not frozen");
            trainer.freeze("hidden-weight");
            check(trainer.isFrozen("hidden-weight") && !trainer.isFrozen("none"), "frozen");
        }
    }

    private static void specs(String ranged) {
        try (Trainer trainer = Trainer.open(bundle, ONE);
                Predictor predictor = Predictor.open(bundle, null, ONE)) {
            Spec images = trainer.feeds().get(0);
            check(images.name().equals("images") && images.dtype() == DType.FLOAT32, "a feed");
            check(Arrays.equals(images.shape(), new long[] {8, 20}), "its shape");
            check(images.symbols()[0] == null && images.role() == null, "nothing is free");
            check(trainer.results().get(0).name().equals("out/0"), "a result");
            check(predictor.feeds().size() == 1 && predictor.results().size() == 1, "of a model");
            int slots = 0;
            for (Spec spec : trainer.state().specs()) {
                slots += "slot".equals(spec.role()) && spec.of() != null ? 1 : 0;
            }
            check(slots == 8, "momentum and sum of two weights and two biases");
        }
        try (Trainer trainer = Trainer.open(ranged, ONE)) {
            Range range = trainer.feeds().get(1).range();
            check(range.least() == 0 && range.below() == 10, "the ends of a range");
            check(range.ignored() == -1 && range.layer().equals("the loss"), "the rest of it");
            check(trainer.feeds().get(0).range() == null, "no range");
        }
    }

    /** Threads share a predictor; the calls of a trainer take turns. */
    private static void threads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Boolean>> answers = new ArrayList<>();
        try (Predictor predictor = Predictor.open(bundle, null, ONE);
                Trainer trainer = Trainer.open(bundle, ONE)) {
            Tensor images = Tensor.of(PIXELS, 8, 20);
            Tensor labels = Tensor.of(LABELS, 8);
            double[] wanted = only(predictor.run(images)).toDoubles();
            for (int i = 0; i < 4; i++) {
                answers.add(pool.submit(() -> {
                    boolean same = true;
                    for (int call = 0; call < 50; call++) {
                        same &= Arrays.equals(only(predictor.run(images)).toDoubles(), wanted);
                        trainer.step(images, labels);
                        trainer.stop(false);
                    }
                    return same;
                }));
            }
            for (Future<Boolean> answer : answers) {
                check(answer.get(), "the same in each thread");
            }
            check(trainer.steps() == 200, "each step was made once");
            predictor.stop(true);
            refused(StoppedException.class, () -> predictor.run(images));
            predictor.stop(false);
            check(Arrays.equals(only(predictor.run(images)).toDoubles(), wanted), "again");
        }
        pool.shutdown();
        check(pool.awaitTermination(60, TimeUnit.SECONDS), "all threads end");
    }

    private static Tensor only(Map<String, Tensor> results) {
        return results.values().iterator().next();
    }

    /** Memory that only a call or a view still uses is not freed under it. */
    private static void garbage() {
        try (Trainer trainer = Trainer.open(bundle, ONE)) {
            List<FloatBuffer> kept = new ArrayList<>();
            double first = 0;
            for (int i = 0; i < 300; i++) {
                FloatBuffer images = direct(4 * 160).asFloatBuffer();
                images.put(PIXELS).flip();
                Map<String, Tensor> results =
                        trainer.evaluate(Tensor.of(images, 8, 20), Tensor.of(LABELS, 8));
                kept.add(only(results).floats());
                if (i % 50 == 0) {
                    System.gc();
                    first = kept.get(0).get(0);
                }
            }
            check(kept.get(299).get(0) == first, "results outlive their calls");
        }
        System.gc();
    }

    private static void closing() {
        Trainer trainer = Trainer.open(bundle, ONE);
        State state = trainer.state();
        trainer.close();
        trainer.close();
        refused(IllegalStateException.class, trainer::steps);
        refused(IllegalStateException.class, () -> trainer.step(Tensor.of(PIXELS, 8, 20)));
        refused(IllegalStateException.class, state::read);
        refused(IllegalStateException.class, () -> {
            trainer.stop(true);
            return null;
        });
        Predictor predictor = Predictor.open(bundle, null, ONE);
        predictor.close();
        predictor.close();
        refused(IllegalStateException.class, () -> predictor.run(Tensor.of(PIXELS, 8, 20)));
    }
}
