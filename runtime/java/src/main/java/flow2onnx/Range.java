package flow2onnx;

/** The whole numbers that a feed may hold: from least on, below below, and perhaps one ignored. */
public final class Range {
    private final long least;
    private final long below;
    private final Long ignored;
    private final String layer;

    Range(long least, long below, Long ignored, String layer) {
        this.least = least;
        this.below = below;
        this.ignored = ignored;
        this.layer = layer;
    }

    public long least() {
        return least;
    }

    public long below() {
        return below;
    }

    /** A number that is taken for no label; null if there is none. */
    public Long ignored() {
        return ignored;
    }

    /** What reads the numbers, or an empty text. */
    public String layer() {
        return layer;
    }
}
