package flow2onnx;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A tensor of a model or of the state, without its values. */
public final class Spec {
    private final String name;
    private final DType dtype;
    private final long[] shape;
    private final String[] symbols;
    private final String role;
    private final String of;
    private final boolean trainable;
    private final Range range;

    private Spec(ByteBuffer spec) {
        name = Memory.textAt(Memory.pointerAt(spec, Native.SPEC_NAME));
        dtype = DType.of(spec.getInt(Native.SPEC_DTYPE));
        shape = new long[(int) Memory.pointerAt(spec, Native.SPEC_RANK)];
        symbols = new String[shape.length];
        readShape(
                Memory.pointerAt(spec, Native.SPEC_SHAPE), Memory.pointerAt(spec, Native.SPEC_SYMBOLS));
        role = Memory.textAt(Memory.pointerAt(spec, Native.SPEC_ROLE));
        of = Memory.textAt(Memory.pointerAt(spec, Native.SPEC_OF));
        trainable = spec.get(Native.SPEC_TRAINABLE) != 0;
        range = rangeAt(Memory.pointerAt(spec, Native.SPEC_RANGE));
    }

    private void readShape(long sizes, long names) {
        if (shape.length == 0) {
            return;
        }
        Memory.viewOf(sizes, 8L * shape.length).asLongBuffer().get(shape);
        if (names != 0) {
            ByteBuffer found = Memory.viewOf(names, Memory.pointerBytesOf(shape.length));
            for (int i = 0; i < shape.length; i++) {
                symbols[i] = Memory.textAt(Memory.pointerAt(found, Memory.pointerBytesOf(i)));
            }
        }
    }

    private static Range rangeAt(long address) {
        if (address == 0) {
            return null;
        }
        ByteBuffer found = Memory.viewOf(address, Native.RANGE_SIZE);
        boolean hasIgnored = found.get(Native.RANGE_HAS_IGNORED) != 0;
        return new Range(
                found.getLong(Native.RANGE_LEAST),
                found.getLong(Native.RANGE_BELOW),
                hasIgnored ? found.getLong(Native.RANGE_IGNORED) : null,
                Memory.textAt(Memory.pointerAt(found, Native.RANGE_LAYER)));
    }

    /** The specs at an address; what they point to is copied. */
    static List<Spec> listAt(long address, long count) {
        List<Spec> found = new ArrayList<Spec>();
        for (long i = 0; i < count; i++) {
            found.add(new Spec(Memory.viewOf(address + i * Native.SPEC_SIZE, Native.SPEC_SIZE)));
        }
        return Collections.unmodifiableList(found);
    }

    public String name() {
        return name;
    }

    public DType dtype() {
        return dtype;
    }

    /** The sizes; -1 where one is free. */
    public long[] shape() {
        return shape.clone();
    }

    /** The names of the free sizes, "?" without a name; null in place of fixed sizes. */
    public String[] symbols() {
        return symbols.clone();
    }

    /** Of a state tensor: variable, slot or counter; else null. */
    public String role() {
        return role;
    }

    /** The variable of a slot; else null. */
    public String of() {
        return of;
    }

    /** True for a state tensor that a step writes. */
    public boolean isTrainable() {
        return trainable;
    }

    /** What is known of the numbers of a feed; else null. */
    public Range range() {
        return range;
    }
}
