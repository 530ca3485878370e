package flow2onnx;

import java.util.List;
import java.util.Map;

/** The tensors of a trainer by name: weights, the optimizer's slots, the counter. */
public final class State {
    private final Trainer trainer;
    private final long handle;
    private final List<Spec> specs;

    State(Trainer trainer, long handle) {
        this.trainer = trainer;
        this.handle = handle;
        Frame frame = trainer.begin();
        specs = Spec.listAt(Native.stateSpecs(handle, frame.out()), frame.outValue());
    }

    /** What tensors there are. */
    public List<Spec> specs() {
        return specs;
    }

    /** Copies of the tensors named; of all if none is. */
    public Map<String, Tensor> read(String... names) {
        synchronized (trainer) {
            Frame frame = trainer.begin();
            long given = names.length == 0 ? 0 : frame.texts(names);
            frame.check(
                    Native.stateRead(handle, given, names.length, frame.results(), frame.error()));
            return frame.copyResults();
        }
    }

    /** Replace some tensors. All are checked before any is written. */
    public void write(Tensor... values) {
        synchronized (trainer) {
            Frame frame = trainer.begin();
            long given = frame.tensors(values);
            frame.check(Native.stateWrite(handle, given, values.length, frame.error()));
        }
    }

    /** Replace exactly all tensors. */
    public void replace(Tensor... values) {
        synchronized (trainer) {
            Frame frame = trainer.begin();
            long given = frame.tensors(values);
            frame.check(Native.stateReplace(handle, given, values.length, frame.error()));
        }
    }
}
