import flow2onnx.Flow2OnnxException;
import flow2onnx.Optimization;
import flow2onnx.Options;
import flow2onnx.Predictor;
import flow2onnx.Safetensors;
import flow2onnx.Spec;
import flow2onnx.Tensor;
import flow2onnx.Trainer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Does what lines of text say, and answers each as the driver of the C runtime does. */
final class Driver {
    private static final String[] STATUS = {
        "BundleException", "StateException", "FeedException", "RunException", "OptionsException",
        "NonFiniteException", "FileException", "MemoryException", "MissingRuntimeException",
        "StoppedException"
    };

    private Options options = new Options();
    private Map<String, Tensor> feeds = Collections.emptyMap();
    private Trainer trainer;
    private Predictor predictor;

    private Driver() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(driver.answer(line.trim().split(" +")));
            out.flush();
        }
        driver.close();
    }

    private void close() {
        if (trainer != null) {
            trainer.close();
        }
        if (predictor != null) {
            predictor.close();
        }
    }

    private String answer(String[] words) {
        try {
            return act(words[0], words.length > 1 ? words[1] : "", words);
        } catch (Flow2OnnxException error) {
            int status = Arrays.asList(STATUS).indexOf(error.getClass().getSimpleName()) + 1;
            if (!error.getMessage().endsWith(error.hint())) {
                return "error 99 the hint is not in the message";
            }
            return "error " + status + " " + error.getMessage().replace('\n', '|');
        }
    }

    private String act(String word, String first, String[] words) {
        switch (word) {
            case "open":
                Trainer next = Trainer.open(first, options);
                if (trainer != null) {
                    trainer.close();
                }
                trainer = next;
                return "ok";
            case "predictor":
                Predictor opened = Predictor.open(first, null, options);
                if (predictor != null) {
                    predictor.close();
                }
                predictor = opened;
                return "ok";
            case "feeds":
                feeds = Safetensors.load(first);
                return "ok";
            case "tensors":
                return shown(Safetensors.load(first));
            case "copy":
                Safetensors.save(words[2], all(Safetensors.load(first)));
                return "ok";
            case "run":
                return shown(predictor.run(all(Safetensors.load(first))));
            default:
                return set(word, first) ? "ok" : train(word, first, words);
        }
    }

    private boolean set(String word, String first) {
        switch (word) {
            case "optimize":
                options = options.optimization(Optimization.values()[Integer.parseInt(first)]);
                return true;
            case "threads":
                options = options.threads(Integer.parseInt(first));
                return true;
            case "finite":
                options = options.finiteLosses(first.equals("1"));
                return true;
            case "ort":
                options = options.ortFormat(first.equals("1"));
                return true;
            case "library":
                options = options.library(first);
                return true;
            default:
                return false;
        }
    }

    private String train(String word, String first, String[] words) {
        switch (word) {
            case "step":
                return shown(trainer.step(batch(trainer.feeds(), first)));
            case "evaluate":
                return shown(trainer.evaluate(batch(trainer.feeds(), first)));
            case "accumulate":
                return shown(trainer.accumulate(batch(trainer.feeds(), first)));
            case "predict":
                return shown(trainer.predict(batch(predictor.feeds(), first)));
            case "time":
                return "ok " + time(Integer.parseInt(first));
            case "steps":
                return "ok " + trainer.steps() + " " + trainer.rate() + " " + trainer.accumulated();
            default:
                change(word, first, words);
                return "ok";
        }
    }

    /** Nanoseconds of one step on the first batch. */
    private long time(int steps) {
        Tensor[] given = batch(trainer.feeds(), "0");
        long start = System.nanoTime();
        for (int i = 0; i < steps; i++) {
            trainer.step(given);
        }
        return (System.nanoTime() - start) / steps;
    }

    private void change(String word, String first, String[] words) {
        switch (word) {
            case "stop":
                trainer.stop(first.equals("1"));
                if (predictor != null) {
                    predictor.stop(first.equals("1"));
                }
                break;
            case "update":
                trainer.update();
                break;
            case "rate":
                trainer.setRate(number(first));
                break;
            case "schedule":
                trainer.useSchedule();
                break;
            case "freeze":
                trainer.freeze(Arrays.copyOfRange(words, 1, words.length));
                break;
            case "save":
                trainer.save(first);
                break;
            case "load":
                trainer.load(first);
                break;
            case "adapter":
                trainer.exportAdapter(first);
                break;
            case "from":
                trainer.loadAdapter(first);
                break;
            case "export":
                trainer.exportPredict(first);
                break;
            case "state":
                Safetensors.save(first, all(trainer.state().read()));
                break;
            case "put":
                trainer.state().write(all(Safetensors.load(first)));
                break;
            case "replace":
                trainer.state().replace(all(Safetensors.load(first)));
                break;
            case "close":
                trainer.close();
                trainer = null;
                break;
            default:
                throw new IllegalArgumentException(word);
        }
    }

    private static double number(String word) {
        return word.equals("inf") ? Double.POSITIVE_INFINITY
                : word.equals("nan") ? Double.NaN : Double.parseDouble(word);
    }

    private Tensor[] batch(List<Spec> specs, String index) {
        List<Tensor> found = new ArrayList<>();
        for (Spec spec : specs) {
            Tensor stacked = feeds.get(spec.name());
            if (stacked != null) {
                found.add(stacked.row(Integer.parseInt(index)));
            }
        }
        return all(found);
    }

    private static Tensor[] all(Map<String, Tensor> tensors) {
        return all(tensors.values());
    }

    private static Tensor[] all(Collection<Tensor> tensors) {
        return tensors.toArray(new Tensor[0]);
    }

    private static String shown(Map<String, Tensor> results) {
        StringBuilder text = new StringBuilder("ok");
        for (Map.Entry<String, Tensor> result : results.entrySet()) {
            text.append(' ').append(result.getKey());
            double[] numbers = result.getValue().toDoubles();
            for (int i = 0; i < Math.min(16, numbers.length); i++) {
                text.append(String.format(Locale.ROOT, " %.9g", numbers[i]));
            }
        }
        return text.toString();
    }
}
