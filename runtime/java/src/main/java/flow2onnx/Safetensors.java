package flow2onnx;

import java.util.Map;
import java.util.Objects;

/** Files of tensors. */
public final class Safetensors {
    private Safetensors() {}

    /** The tensors of a file, in its order. */
    public static Map<String, Tensor> load(String path) {
        Objects.requireNonNull(path, "a path");
        Frame frame = new Frame();
        try {
            frame.begin();
            long given = frame.text(path);
            frame.check(Native.loadSafetensors(given, frame.results(), frame.error()));
            return frame.copyResults();
        } finally {
            frame.close();
        }
    }

    /** Write named tensors to a file that appears whole or not at all. */
    public static void save(String path, Tensor... tensors) {
        Objects.requireNonNull(path, "a path");
        Frame frame = new Frame();
        try {
            frame.begin();
            long given = frame.text(path);
            long values = frame.tensors(tensors);
            frame.check(Native.saveSafetensors(given, values, tensors.length, frame.error()));
        } finally {
            frame.close();
        }
    }
}
