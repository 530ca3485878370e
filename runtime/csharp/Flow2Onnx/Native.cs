// The C API, generated from its header by `python -m runtime.bindings`.

using System;
using System.Runtime.InteropServices;

namespace Flow2Onnx
{
    /// <summary>f2o_status of C.</summary>
    public enum Status
    {
        /// <summary>F2O_OK of C.</summary>
        Ok = 0,
        /// <summary>a bundle, model or state file that is not what the contract asks for</summary>
        BundleError = 1,
        /// <summary>a value or request that does not fit the state</summary>
        StateError = 2,
        /// <summary>arrays that do not fit a model's inputs</summary>
        FeedError = 3,
        /// <summary>a model that was opened but could not be run on these values</summary>
        RunError = 4,
        /// <summary>an option without meaning</summary>
        OptionsError = 5,
        /// <summary>a loss that is NaN or infinite while finite_losses is on</summary>
        NonFiniteError = 6,
        /// <summary>a file that cannot be written</summary>
        FileError = 7,
        /// <summary>no memory left</summary>
        MemoryError = 8,
        /// <summary>an ONNX Runtime that is missing or too old</summary>
        RuntimeError = 9,
        /// <summary>a run that was stopped</summary>
        StoppedError = 10,
    }

    /// <summary>Element types; the numbers are ONNX's.</summary>
    public enum DType
    {
        /// <summary>F2O_FLOAT32 of C.</summary>
        Float32 = 1,
        /// <summary>F2O_UINT8 of C.</summary>
        UInt8 = 2,
        /// <summary>F2O_INT8 of C.</summary>
        Int8 = 3,
        /// <summary>F2O_UINT16 of C.</summary>
        UInt16 = 4,
        /// <summary>F2O_INT16 of C.</summary>
        Int16 = 5,
        /// <summary>F2O_INT32 of C.</summary>
        Int32 = 6,
        /// <summary>F2O_INT64 of C.</summary>
        Int64 = 7,
        /// <summary>F2O_BOOL of C.</summary>
        Bool = 9,
        /// <summary>F2O_FLOAT16 of C.</summary>
        Float16 = 10,
        /// <summary>F2O_FLOAT64 of C.</summary>
        Float64 = 11,
        /// <summary>F2O_UINT32 of C.</summary>
        UInt32 = 12,
        /// <summary>F2O_UINT64 of C.</summary>
        UInt64 = 13,
        /// <summary>F2O_BFLOAT16 of C.</summary>
        BFloat16 = 16,
    }

    /// <summary>f2o_optimization of C.</summary>
    public enum Optimization
    {
        /// <summary>F2O_OPTIMIZE_ALL of C.</summary>
        All = 0,
        /// <summary>F2O_OPTIMIZE_EXTENDED of C.</summary>
        Extended = 1,
        /// <summary>F2O_OPTIMIZE_BASIC of C.</summary>
        Basic = 2,
        /// <summary>F2O_OPTIMIZE_NONE of C.</summary>
        None = 3,
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeError
    {
        internal Status Status;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 1024)]
        internal byte[] Message;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeTensor
    {
        internal IntPtr Name;
        internal int Dtype;
        internal UIntPtr Rank;
        internal IntPtr Shape;
        internal IntPtr Data;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeTensors
    {
        internal UIntPtr Count;
        internal IntPtr Items;
        internal IntPtr Memory;
        internal UIntPtr Capacity;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeRange
    {
        internal long Least;
        internal long Below;
        internal long Ignored;
        internal byte HasIgnored;
        internal IntPtr Layer;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeSpec
    {
        internal IntPtr Name;
        internal int Dtype;
        internal UIntPtr Rank;
        internal IntPtr Shape;
        internal IntPtr Symbols;
        internal IntPtr Role;
        internal IntPtr Of;
        internal byte Trainable;
        internal IntPtr Range;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal struct NativeOptions
    {
        internal int Threads;
        internal int Optimization;
        internal byte FiniteLosses;
        internal byte OrtFormat;
        internal IntPtr Library;
    }

    internal static class Native
    {
        /// <summary>The library's name; where code is linked into one program, as on
        /// iOS, it is compiled with FLOW2ONNX_STATIC.</summary>
#if FLOW2ONNX_STATIC
        internal const string Library = "__Internal";
#else
        internal const string Library = "flow2onnx_runtime";
#endif

        /// <summary>such as "float32"; NULL for no element type</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_dtype_name(int dtype);

        /// <summary>bytes of one element; 0 likewise</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern UIntPtr f2o_dtype_size(int dtype);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern UIntPtr f2o_tensor_bytes(IntPtr tensor);

        /// <summary>or NULL</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_tensors_find(IntPtr tensors, IntPtr name);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void f2o_tensors_free(IntPtr tensors);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_open(
            IntPtr bundle, IntPtr options, IntPtr trainer, IntPtr error);

        /// <summary>NULL is fine</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void f2o_trainer_close(IntPtr trainer);

        /// <summary>Of the step. Valid until the trainer is closed.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_trainer_feeds(IntPtr trainer, IntPtr count);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_trainer_results(IntPtr trainer, IntPtr count);

        /// <summary>Feeds come by place or by name, each once. results may be NULL.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_step(
            IntPtr trainer, IntPtr feeds, UIntPtr count, IntPtr results, IntPtr error);

        /// <summary>The results of a step that is not made.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_evaluate(
            IntPtr trainer, IntPtr feeds, UIntPtr count, IntPtr results, IntPtr error);

        /// <summary>Add up the gradients of a batch; make one step of the mean of those added up.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_accumulate(
            IntPtr trainer, IntPtr feeds, UIntPtr count, IntPtr results, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_update(IntPtr trainer, IntPtr error);

        /// <summary>batches since the last update</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern long f2o_trainer_accumulated(IntPtr trainer);

        /// <summary>A predict job (NULL: the first) on the present state.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_predict(
            IntPtr trainer, IntPtr job, IntPtr feeds, UIntPtr count, IntPtr results, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern long f2o_trainer_steps(IntPtr trainer);

        /// <summary>The rate that overrides the schedule; below 0 while the schedule holds.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern double f2o_trainer_rate(IntPtr trainer);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_set_rate(
            IntPtr trainer, double rate, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_use_schedule(IntPtr trainer, IntPtr error);

        /// <summary>Freeze these variables with their slots, and no others.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_freeze(
            IntPtr trainer, IntPtr names, UIntPtr count, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        [return: MarshalAs(UnmanagedType.I1)]
        internal static extern bool f2o_trainer_is_frozen(IntPtr trainer, IntPtr variable);

        /// <summary>A file that appears whole or not at all, also when the process is killed.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_save(IntPtr trainer, IntPtr path, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_load(IntPtr trainer, IntPtr path, IntPtr error);

        /// <summary>A predict job (NULL: the first) with the present weights; the folder is missing, empty, or holds an earlier export. Any ONNX Runtime opens its model file.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_export_predict(
            IntPtr trainer, IntPtr folder, IntPtr job, IntPtr error);

        /// <summary>The adapter that a bundle of adapters trains, as ONNX Runtime's file .onnx_adapter, which appears whole or not at all; and going on from one of the same modules and ranks: slots stay.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_export_adapter(
            IntPtr trainer, IntPtr path, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_trainer_load_adapter(
            IntPtr trainer, IntPtr path, IntPtr error);

        /// <summary>While stopped, a run ends soon, or does not begin, with F2O_STOPPED_ERROR and the state as it was; false lets runs begin again. From any thread, as long as the trainer is open.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void f2o_trainer_stop(
            IntPtr trainer, [MarshalAs(UnmanagedType.I1)] bool stopped);

        /// <summary>the trainer's own: not to be freed</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_trainer_state(IntPtr trainer);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_state_specs(IntPtr state, IntPtr count);

        /// <summary>Copies of the tensors named; of all if names is NULL.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_state_read(
            IntPtr state, IntPtr names, UIntPtr count, IntPtr values, IntPtr error);

        /// <summary>Replace some tensors, or exactly all. All are checked before any is written.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_state_write(
            IntPtr state, IntPtr values, UIntPtr count, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_state_replace(
            IntPtr state, IntPtr values, UIntPtr count, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_predictor_open(
            IntPtr modelOrBundle, IntPtr job, IntPtr options, IntPtr predictor, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void f2o_predictor_close(IntPtr predictor);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_predictor_feeds(IntPtr predictor, IntPtr count);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern IntPtr f2o_predictor_results(IntPtr predictor, IntPtr count);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_predictor_run(
            IntPtr predictor, IntPtr feeds, UIntPtr count, IntPtr results, IntPtr error);

        /// <summary>The same of all calls of a predictor.</summary>
        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern void f2o_predictor_stop(
            IntPtr predictor, [MarshalAs(UnmanagedType.I1)] bool stopped);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_load_safetensors(
            IntPtr path, IntPtr tensors, IntPtr error);

        [DllImport(Library, CallingConvention = CallingConvention.Cdecl)]
        internal static extern Status f2o_save_safetensors(
            IntPtr path, IntPtr tensors, UIntPtr count, IntPtr error);
    }
}
