package flow2onnx;

/**
 * The C API, generated from its header by {@code python -m runtime.bindings}. Pointers are
 * numbers; a place in a structure is what the C compiler says of this machine.
 */
final class Native {
    static final int OK = 0;
    static final int BUNDLE_ERROR = 1;
    static final int STATE_ERROR = 2;
    static final int FEED_ERROR = 3;
    static final int RUN_ERROR = 4;
    static final int OPTIONS_ERROR = 5;
    static final int NON_FINITE_ERROR = 6;
    static final int FILE_ERROR = 7;
    static final int MEMORY_ERROR = 8;
    static final int RUNTIME_ERROR = 9;
    static final int STOPPED_ERROR = 10;
    static final int FLOAT32 = 1;
    static final int UINT8 = 2;
    static final int INT8 = 3;
    static final int UINT16 = 4;
    static final int INT16 = 5;
    static final int INT32 = 6;
    static final int INT64 = 7;
    static final int BOOL = 9;
    static final int FLOAT16 = 10;
    static final int FLOAT64 = 11;
    static final int UINT32 = 12;
    static final int UINT64 = 13;
    static final int BFLOAT16 = 16;
    static final int OPTIMIZE_ALL = 0;
    static final int OPTIMIZE_EXTENDED = 1;
    static final int OPTIMIZE_BASIC = 2;
    static final int OPTIMIZE_NONE = 3;

    private static final int[] LAYOUT;

    static {
        Library.load();
        LAYOUT = layout();
    }

    static final int ERROR_SIZE = LAYOUT[0];
    static final int ERROR_STATUS = LAYOUT[1];
    static final int ERROR_MESSAGE = LAYOUT[2];
    static final int TENSOR_SIZE = LAYOUT[3];
    static final int TENSOR_NAME = LAYOUT[4];
    static final int TENSOR_DTYPE = LAYOUT[5];
    static final int TENSOR_RANK = LAYOUT[6];
    static final int TENSOR_SHAPE = LAYOUT[7];
    static final int TENSOR_DATA = LAYOUT[8];
    static final int TENSORS_SIZE = LAYOUT[9];
    static final int TENSORS_COUNT = LAYOUT[10];
    static final int TENSORS_ITEMS = LAYOUT[11];
    static final int TENSORS_MEMORY = LAYOUT[12];
    static final int TENSORS_CAPACITY = LAYOUT[13];
    static final int RANGE_SIZE = LAYOUT[14];
    static final int RANGE_LEAST = LAYOUT[15];
    static final int RANGE_BELOW = LAYOUT[16];
    static final int RANGE_IGNORED = LAYOUT[17];
    static final int RANGE_HAS_IGNORED = LAYOUT[18];
    static final int RANGE_LAYER = LAYOUT[19];
    static final int SPEC_SIZE = LAYOUT[20];
    static final int SPEC_NAME = LAYOUT[21];
    static final int SPEC_DTYPE = LAYOUT[22];
    static final int SPEC_RANK = LAYOUT[23];
    static final int SPEC_SHAPE = LAYOUT[24];
    static final int SPEC_SYMBOLS = LAYOUT[25];
    static final int SPEC_ROLE = LAYOUT[26];
    static final int SPEC_OF = LAYOUT[27];
    static final int SPEC_TRAINABLE = LAYOUT[28];
    static final int SPEC_RANGE = LAYOUT[29];
    static final int OPTIONS_SIZE = LAYOUT[30];
    static final int OPTIONS_THREADS = LAYOUT[31];
    static final int OPTIONS_OPTIMIZATION = LAYOUT[32];
    static final int OPTIONS_FINITE_LOSSES = LAYOUT[33];
    static final int OPTIONS_ORT_FORMAT = LAYOUT[34];
    static final int OPTIONS_LIBRARY = LAYOUT[35];

    private Native() {}

    private static native int[] layout();

    /** such as "float32"; NULL for no element type */
    static native long dtypeName(int dtype);

    /** bytes of one element; 0 likewise */
    static native long dtypeSize(int dtype);

    static native long tensorBytes(long tensor);

    /** or NULL */
    static native long tensorsFind(long tensors, long name);

    static native void tensorsFree(long tensors);

    static native int trainerOpen(long bundle, long options, long trainer, long error);

    /** NULL is fine */
    static native void trainerClose(long trainer);

    /** Of the step. Valid until the trainer is closed. */
    static native long trainerFeeds(long trainer, long count);

    static native long trainerResults(long trainer, long count);

    /** Feeds come by place or by name, each once. results may be NULL. */
    static native int trainerStep(long trainer, long feeds, long count, long results, long error);

    /** The results of a step that is not made. */
    static native int trainerEvaluate(
            long trainer, long feeds, long count, long results, long error);

    /** Add up the gradients of a batch; make one step of the mean of those added up. */
    static native int trainerAccumulate(
            long trainer, long feeds, long count, long results, long error);

    static native int trainerUpdate(long trainer, long error);

    /** batches since the last update */
    static native long trainerAccumulated(long trainer);

    /** A predict job (NULL: the first) on the present state. */
    static native int trainerPredict(
            long trainer, long job, long feeds, long count, long results, long error);

    static native long trainerSteps(long trainer);

    /** The rate that overrides the schedule; below 0 while the schedule holds. */
    static native double trainerRate(long trainer);

    static native int trainerSetRate(long trainer, double rate, long error);

    static native int trainerUseSchedule(long trainer, long error);

    /** Freeze these variables with their slots, and no others. */
    static native int trainerFreeze(long trainer, long names, long count, long error);

    static native boolean trainerIsFrozen(long trainer, long variable);

    /** A file that appears whole or not at all, also when the process is killed. */
    static native int trainerSave(long trainer, long path, long error);

    static native int trainerLoad(long trainer, long path, long error);

    static native int trainerExportPredict(long trainer, long folder, long job, long error);

    static native int trainerExportAdapter(long trainer, long path, long error);

    static native int trainerLoadAdapter(long trainer, long path, long error);

    static native void trainerStop(long trainer, boolean stopped);

    /** the trainer's own: not to be freed */
    static native long trainerState(long trainer);

    static native long stateSpecs(long state, long count);

    /** Copies of the tensors named; of all if names is NULL. */
    static native int stateRead(long state, long names, long count, long values, long error);

    /** Replace some tensors, or exactly all. All are checked before any is written. */
    static native int stateWrite(long state, long values, long count, long error);

    static native int stateReplace(long state, long values, long count, long error);

    static native int predictorOpen(
            long modelOrBundle, long job, long options, long predictor, long error);

    static native void predictorClose(long predictor);

    static native long predictorFeeds(long predictor, long count);

    static native long predictorResults(long predictor, long count);

    static native int predictorRun(
            long predictor, long feeds, long count, long results, long error);

    /** The same of all calls of a predictor. */
    static native void predictorStop(long predictor, boolean stopped);

    static native int loadSafetensors(long path, long tensors, long error);

    static native int saveSafetensors(long path, long tensors, long count, long error);
}
