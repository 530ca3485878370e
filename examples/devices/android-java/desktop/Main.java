import flow2onnx.Safetensors;
import flow2onnx.Tensor;
import flow2onnx.digits.PersonalDigits;
import java.io.File;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.Map;

/** The phone's model on a desktop, shown the digits of hand.safetensors: Main FOLDER. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        File folder = new File(arguments[0]);
        Map<String, Tensor> hand = Safetensors.load(folder + "/hand.safetensors");
        try (PersonalDigits digits = new PersonalDigits(new File(folder, "bundle"), folder)) {
            System.out.printf("after %d steps %.1f %%%n", digits.steps(), right(digits, hand));
            FloatBuffer images = hand.get("images").floats();
            IntBuffer labels = hand.get("labels").ints();
            while (labels.hasRemaining()) {
                digits.collect(next(images), labels.get());
            }
            System.out.printf("loss %.4f%n", digits.train(8));
            System.out.printf("after %d steps %.1f %%%n", digits.steps(), right(digits, hand));
        }
    }

    private static float[] next(FloatBuffer images) {
        float[] pixels = new float[64];
        images.get(pixels);
        return pixels;
    }

    private static double right(PersonalDigits digits, Map<String, Tensor> hand) {
        FloatBuffer tests = hand.get("tests").floats();
        IntBuffer answers = hand.get("answers").ints();
        int right = 0;
        while (answers.hasRemaining()) {
            right += digits.predict(next(tests)) == answers.get() ? 1 : 0;
        }
        return 100.0 * right / answers.capacity();
    }
}
