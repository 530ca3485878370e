"""The rows of `config.runtime`: ONNX Runtime's own settings under the names it gives them."""

from collections.abc import Mapping
from types import MappingProxyType

from flow2onnx_runtime.providers import PROVIDERS

from flow2onnx.config.effects import ALIAS, IGNORED, PROVIDER, SESSION, TRACE
from flow2onnx.config.kinds import AUTO_OR_COUNT, BOOL, NOTHING, PARTS, POSITIVE, STR, SwitchOr
from flow2onnx.config.messages import Choice, Texts
from flow2onnx.config.table import Flag

__all__ = ["FREE_FORMS", "RUNTIME_FLAGS"]

_SPINNING = ("session.intra_op.allow_spinning", "session.inter_op.allow_spinning")
# Providers whose options are known, which are given by name; of others none would be checked.
_WITH_OPTIONS = tuple(row.tag for row in PROVIDERS.values() if row.options)
_SWITCH: Mapping[object, object] = MappingProxyType({True: "1", False: "0"})
# Rows whose call takes a name and a value, and whose assignment takes a dict of all of them.
FREE_FORMS = (
    "runtime.session_entry", "runtime.run_entry", "runtime.provider_option", "runtime.lowering",
)  # fmt: skip

# A row stays as written, its columns in order.
# fmt: off
RUNTIME_FLAGS = (
    Flag("runtime.mixed_precision_dtype", Choice(("float16", "bfloat16")), "float16",
         TRACE("half type of enable_auto_mixed_precision"),
         "Element type in which a job with enable_auto_mixed_precision computes."),
    Flag("runtime.placement", Choice(("strict", "best effort")), None,
         TRACE("what becomes of a device or provider that cannot be used"),
         "strict: an error; best effort: one warning, and the next provider in order. Unset, only "
         "a GPU placement on an onnxruntime without GPU support falls back, to the CPU."),
    Flag("runtime.provider", STR, None, TRACE("which provider the jobs of a session run on"),
         "Run on a provider by its tag, such as 'openvino', wherever jobs are placed; one that "
         "cannot be used is an error."),
    Flag("runtime.provider_library", STR, None,
         TRACE("shared library of a plug-in provider, which the process has from then on"),
         "File of a plug-in provider, to be registered with ONNX Runtime; runtime.provider then "
         "names what it brings."),
    Flag("runtime.intra_op_num_threads", POSITIVE, None, SESSION(("intra_op_threads",)),
         "Threads of one operator on the CPU; unset, as compute_thread_pool_size says."),
    Flag("runtime.inter_op_num_threads", POSITIVE, None, SESSION(("inter_op_threads",)),
         "Operators that run at once; needs execution_mode 'parallel'."),
    Flag("runtime.execution_mode", Choice(("sequential", "parallel")), None,
         SESSION(("parallel",), {"sequential": False, "parallel": True}),
         "Whether independent operators run at the same time; small graphs become much slower."),
    Flag("runtime.allow_spinning", BOOL, None, SESSION(_SPINNING, _SWITCH),
         "Let idle threads wait busily; False where several processes share the cores. Unset, as "
         "force_spinning_stop says, and never where there are more threads than processors."),
    Flag("runtime.force_spinning_stop", BOOL, False,
         SESSION(("session.force_spinning_stop",), {True: "1"}),
         "Let idle threads wait busily within a call, and sleep between calls: for jobs that take "
         "turns on the same cores. Jobs that are opened beside others, or for another batch size, "
         "do so unless allow_spinning is set."),
    Flag("runtime.graph_optimization_level", Choice(("disable", "basic", "extended", "all")), None,
         SESSION(("optimization",)),
         "How far ONNX Runtime rewrites the graph; unset, extended to train and all to predict."),
    Flag("runtime.enable_cpu_mem_arena", BOOL, True,
         SESSION(("cpu_arena",), {False: False}),
         "Keep freed host memory for later runs."),
    Flag("runtime.enable_mem_pattern", BOOL, None, SESSION(("memory_pattern",)),
         "Allocate the memory of a run in one piece, planned before the first run."),
    Flag("runtime.in_place", BOOL, True, TRACE("state updated in its own buffer where it can be"),
         "Update weights and optimizer state in their own buffer where every reader of the old "
         "value is proven to come first. A step that the runtime fails in leaves these lost; False "
         "keeps two buffers of everything, and the old values."),
    Flag("runtime.recompute", PARTS, False, TRACE("activations made twice in place of being kept"),
         "Less memory for more time: what only gradients read is computed again when they are due. "
         "True cuts the job into about as many segments as the square root of its activations, a "
         "number into so many; names of layers or scopes say what to compute again. Results are "
         "the same to the bit; what is drawn at random is kept."),
    Flag("runtime.gradient_segments", AUTO_OR_COUNT, "auto",
         TRACE("in how many models the way back of a job of several processes is computed"),
         "Gradients of one model are on their way to the other processes while the next computes. "
         "auto: a cut where what it hides, by the bytes to send, is more than it costs, none on a "
         "GPU, nor for two processes of one thread each on a machine of two processors; a number: "
         "at most so many models of about equal bytes of gradients, 1 for no cut."),
    Flag("runtime.micro_batches", POSITIVE, None, TRACE("parts of a batch under way at once"),
         "In how many parts, one after another, a batch goes through layers that are placed on "
         "different devices; unset, up to two for each device, where that changes no result."),
    Flag("runtime.recompute_products", BOOL, True,
         TRACE("whether products are among what recompute makes twice"),
         "With runtime.recompute: False keeps the results of long products, convolutions and "
         "attention, so that what is computed again costs little."),
    Flag("runtime.memory_limit", POSITIVE, None, TRACE("most memory that the jobs may need"),
         "Bytes that the jobs of a session may be estimated to need; unset, what is free on their "
         "device when they are compiled. More is an error before the first step."),
    Flag("runtime.native", SwitchOr(("auto",)), "auto",
         TRACE("whether the operators of flow2onnx-native take part in jobs on CPU and CUDA"),
         "Use the operators of the package flow2onnx-native: auto, if it is installed; True, and "
         "it must be; False, not. Exported models never have them."),
    Flag("runtime.winograd", BOOL, True,
         TRACE("whether native convolutions may use Winograd's algorithm"),
         "Let native operators compute convolutions of 3x3 and 5x5 by tiles where that is faster, "
         "to within 2e-5 of the largest value; False: as sums of products, within 1e-5."),
    Flag("runtime.set_denormal_as_zero", BOOL, False,
         SESSION(("session.set_denormal_as_zero",), {True: "1"}),
         "Flush denormal numbers to zero, which the CPU is slow at."),
    Flag("runtime.graph_cache", STR, None, TRACE("folder of graphs as the runtime rewrote them"),
         "Folder where graphs are kept as ONNX Runtime has rewritten them, by content, machine and "
         "version; jobs on the CPU then start faster. At most 2 GB; unset, nothing is kept."),
    Flag("runtime.opening_cache", BOOL, True, TRACE("openings of large jobs kept on disk"),
         "Keep what native operators and ONNX Runtime make of a job of 1,000 nodes and more on the "
         "CPU, in the user's cache folder; the next process opens it from there. A train job that "
         "has not changed is not differentiated and rewritten for that, unless a function of the "
         "program's own, such as a schedule, is part of it, or mixed precision is on. The command "
         "`flow2onnx cache` shows and clears it; FLOW2ONNX_CACHE names a folder, or 0 for none."),
    Flag("runtime.enable_profiling", BOOL, False, SESSION(("profile",), {True: "flow2onnx"}),
         "Write a trace of every run, when the session ends, to a JSON file."),
    Flag("runtime.profile_file_prefix", STR, None, SESSION(("profile",)),
         "How the names of profile files begin; a folder may be part of it."),
    Flag("runtime.log_severity_level", Choice(("info", "warning", "error", "fatal")), None,
         SESSION(("log_level",)),
         "What the runtime itself writes to stderr; errors are raised with their text anyway."),
    Flag("runtime.use_tf32", BOOL, None, PROVIDER("cuda", "use_tf32", _SWITCH),
         "Let float32 matrix products and convolutions round their inputs to TF32."),
    Flag("runtime.prefer_nhwc", BOOL, False, PROVIDER("cuda", "prefer_nhwc", {True: "1"}),
         "Let convolutions run in NHWC layout."),
    Flag("runtime.fuse_conv_bias", BOOL, False, PROVIDER("cuda", "fuse_conv_bias", {True: "1"}),
         "Let cuDNN add the bias of a convolution."),
    Flag("runtime.cudnn_conv_algo_search", Choice(("HEURISTIC", "EXHAUSTIVE")), "HEURISTIC",
         ALIAS("cudnn_conv_heuristic_search_algo", {"HEURISTIC": True, "EXHAUSTIVE": False}),
         "The runtime's name of cudnn_conv_heuristic_search_algo."),
    Flag("runtime.gpu_mem_limit", POSITIVE, None, PROVIDER("cuda", "gpu_mem_limit"),
         "Most device memory of the arena, in bytes."),
    Flag("runtime.arena_extend_strategy", Choice(("kNextPowerOfTwo", "kSameAsRequested")), None,
         PROVIDER("cuda", "arena_extend_strategy"),
         "By how much the arena grows when it is full."),
    Flag("runtime.enable_cuda_graph", BOOL, None,
         PROVIDER("cuda", "enable_cuda_graph", {True: "1"}),
         "Capture a run as a CUDA graph and replay it: one launch in place of one per operator. "
         "Unset, jobs on CUDA are captured where that can be, and explain says why one is not; "
         "True makes that an error; False captures none."),
    Flag("runtime.user_compute_stream", POSITIVE, None, PROVIDER("cuda", "user_compute_stream"),
         "Address of the CUDA stream to run on, such as torch.cuda.current_stream().cuda_stream."),
    Flag("runtime.tensorrt_cache_path", STR, None,
         TRACE("folder of the engine and timing caches of TensorRT"),
         "Where TensorRT keeps engines; unset, flow2onnx/tensorrt in the user's cache folder."),
    Flag("runtime.autotune", SwitchOr(("only cache",)), False,
         TRACE("which form of a lowering each node takes"),
         "Measure the forms that gradients have for the shapes of this job, once on each machine, "
         "and take the fastest; 'only cache' takes what is known and measures nothing."),
    Flag("runtime.tuning_cache_path", STR, None, TRACE("file of what autotune measured"),
         "Where autotune keeps its answers; unset, flow2onnx/lowerings.json in the user's cache "
         "folder."),
    Flag("runtime.lowering", Texts("Conv.dW"), {}, TRACE("which form a lowering takes"),
         "A form by name, where it is valid: lowering('Conv.dW', 'im2col'). It goes before what "
         "was measured."),
    Flag("runtime.session_entry", Texts("session.intra_op.allow_spinning"), {},
         TRACE("entries of the session's configuration"),
         "An entry by the runtime's name: session_entry('session.disable_prepacking', '1')."),
    Flag("runtime.run_entry", Texts("memory.enable_memory_arena_shrinkage"), {},
         TRACE("entries of the configuration of every run"),
         "An entry by the runtime's name: run_entry('memory.enable_memory_arena_shrinkage', "
         "'cpu:0')."),
    Flag("runtime.provider_option", Texts("cuda.prefer_nhwc", _WITH_OPTIONS), {},
         TRACE("options of a provider"),
         "An option by the provider's name: provider_option('cuda', 'sdpa_kernel', '0')."),
    Flag("runtime.function_desc", NOTHING, None,
         IGNORED("it is the read-only view of all settings"),
         "Read-only view of the configuration."),
)
# fmt: on
