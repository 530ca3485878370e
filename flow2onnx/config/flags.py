"""The one table of the flags of `flow.function_config()`."""

from collections.abc import Mapping
from types import MappingProxyType

from flow2onnx.config.effects import (
    ALIAS,
    IGNORED,
    LATER,
    PROVIDER,
    RECORDED,
    SESSION,
    TRACE,
)
from flow2onnx.config.kinds import (
    BOOL,
    DATA_TYPE,
    FLOAT,
    INT,
    NATURAL,
    NOTHING,
    POSITIVE,
    POSITIVE_FLOAT,
    SCOPE,
    STR,
    VIEW,
)
from flow2onnx.config.messages import (
    EXPERIMENTAL_RUN,
    INDEXED_SLICES,
    INITIALIZER,
    MODEL_UPDATE,
    Choice,
    Listed,
)
from flow2onnx.config.runtime_flags import RUNTIME_FLAGS
from flow2onnx.config.table import Flag, Table
from flow2onnx.dtypes import float32

__all__ = ["FLAGS", "PLANNERS", "POLICIES"]


POLICIES = ("use_mem_size_first_algo", "use_mutual_exclusion_first_algo", "use_time_line_algo")
PLANNERS = POLICIES  # the planners bear the names of the policies

_BUCKETS = "in which buckets gradients travel between the processes that train a job"
_FULL_SUMS = "gradients travel in float32: sums of float16 are off by a thousandth"
_ONE_PROCESS = "one device per job"
_SHARDING = "of which optimizer state each process that trains a job keeps a part"
_FUSED = "ONNX Runtime fuses what it can"
_MARKERS = "tracing leaves no such operators in the graph"
_ALGORITHM = "ONNX Runtime searches algorithms itself; see cudnn_conv_heuristic_search_algo"
_TRUE_HALF = "ONNX Runtime always accumulates half-precision convolutions in float32"
_INVERSE: Mapping[object, object] = MappingProxyType({True: False, False: True})
_USES_TENSORRT = (("use_tensorrt", True),)


def _small_workspace(mbyte: object) -> object:
    # cudnn_conv_use_max_workspace=0 caps the workspace at 32 MiB; there is no other size
    return "0" if isinstance(mbyte, int) and mbyte <= 32 else None


# A row stays as written, its columns in order.
# fmt: off
_TRACED = (
    Flag("default_data_type", DATA_TYPE, float32, TRACE("dtype of variables made without one"),
         "Element type of variables whose dtype is not given."),
    Flag("default_initializer_conf", INITIALIZER, None,
         TRACE("initializer of variables made without one"),
         "Initializer of variables whose initializer is not given, as a dict."),
    Flag("default_placement_scope", SCOPE, None, TRACE("device of the job"),
         "Where the job runs, unless it says so inside."),
    Flag("default_logical_view", VIEW, None, TRACE("kind of placeholders and results"),
         "Whether a job sees whole tensors (consistent) or one per device (mirrored)."),
    Flag("default_distribute_strategy", VIEW, None, ALIAS("default_logical_view"),
         "Former name of default_logical_view."),
    Flag("allow_cpu_return_op", BOOL, True, TRACE("whether results are copied to the host at once"),
         "Copy results to the host as part of the run.", required=True),
    Flag("concurrency_width", POSITIVE, 128, TRACE("bound on asynchronous calls in flight"),
         "Most calls of the job that may be waiting for their results."),
    Flag("enable_auto_mixed_precision", BOOL, False,
         TRACE("element type of matrix products, convolutions and what lies between them"),
         "Run matrix products and convolutions in half precision; weights stay float32."),
    Flag("indexed_slices_optimizer_conf", INDEXED_SLICES, None,
         TRACE("embedding tables of which only the rows looked up are updated"),
         "Variables of which only the rows looked up are updated."),
    Flag("function_desc", NOTHING, None, IGNORED("it is the read-only view of all settings"),
         "Read-only view of the configuration."),
)

_TRAIN = (
    Flag("train.primary_lr", FLOAT, None, TRACE("base learning rate"),
         "Learning rate before warm-up and decay."),
    Flag("train.secondary_lr", FLOAT, None,
         TRACE("rate of biases, in the API before 0.2; later releases ignore it"),
         'Learning rate of variables whose model_name is "bias".'),
    Flag("train.model_update_conf", MODEL_UPDATE, None, TRACE("optimizer, schedule and clipping"),
         "One optimizer, and learning-rate decay, warm-up, clipping and weight decay."),
    Flag("train.loss_scale_factor", POSITIVE_FLOAT, 1, TRACE("factor on the loss gradient"),
         "Static loss scale: gradients are computed that much larger and divided again."),
    Flag("train.num_gradient_accumulation_steps", POSITIVE, 1,
         TRACE("batches that a call of a job with readers reads before its one update"),
         "Micro-steps of one call, which makes one update."),
    Flag("train.optimizer_placement_optimization_mode",
         Choice(("non_distributed", "distributed_split")), None,
         ALIAS("optimizer_placement_optimization_mode"),
         "The same as the flag outside the group."),
    Flag("train.optimizer_placement_optimization_threshold", NATURAL, 1024,
         ALIAS("optimizer_placement_optimization_threshold"),
         "The same as the flag outside the group."),
    Flag("train.function_desc", NOTHING, None, IGNORED("it is the read-only view of all settings"),
         "Read-only view of the configuration."),
)

_MEMORY = (
    Flag("enable_inplace", BOOL, True, SESSION(("memory_reuse",), {False: False}),
         "Let results share the memory of inputs that are needed no more."),
    Flag("enable_reused_mem", BOOL, True,
         SESSION(("memory_reuse", "memory_pattern"), {False: False}),
         "Reuse memory within a run."),
    Flag("enable_reuse_mem", BOOL, True, ALIAS("enable_reused_mem"),
         "The protocol's spelling of enable_reused_mem."),
    Flag("use_memory_allocation_algorithm_v2", BOOL, True,
         SESSION(("memory_pattern",), {False: False}),
         "Plan memory before the first run.", required=True),
    Flag("static_mem_alloc_policy_white_list", Listed(Choice(POLICIES)), POLICIES[:2],
         SESSION(("memory_pattern",), {(): False}),
         "Memory planners that may be used: .add, .remove and .has take a policy_*() name."),
    Flag("static_mem_alloc_algo_white_list", NOTHING, PLANNERS,
         IGNORED("it lists names and sets nothing"),
         "The memory planners there are: .show()."),
    Flag("enable_keep_header_only", BOOL, False,
         IGNORED("ONNX Runtime frees a tensor after its last reader"),
         "Keep only the shape of tensors whose data are not needed."),
)

_CUDNN = (
    Flag("enable_cudnn", BOOL, True, PROVIDER("cuda", "enable_cudnn", {False: "0"}),
         "Use cuDNN kernels."),
    Flag("cudnn_buf_limit_mbyte", NATURAL, 1024,
         PROVIDER("cuda", "cudnn_conv_use_max_workspace", _small_workspace,
                  "ONNX Runtime knows two limits, 32 MiB and none, and may read neither"),
         "Most workspace of a cuDNN convolution, in MiB."),
    Flag("cudnn_conv_heuristic_search_algo", BOOL, True,
         PROVIDER("cuda", "cudnn_conv_algo_search", {True: "HEURISTIC", False: "EXHAUSTIVE"}),
         "Choose convolution algorithms by heuristic instead of timing them all.", required=True),
    Flag("cudnn_conv_use_deterministic_algo_only", BOOL, False,
         SESSION(("deterministic",), {True: True},
                 "reductions become deterministic; convolution plans stay as cuDNN gives them"),
         "Use only deterministic algorithms.", required=True),
    Flag("cudnn_conv_enable_pseudo_half", BOOL, True, IGNORED(_TRUE_HALF, unless=(True,)),
         "Half-precision convolution with float32 accumulation.", required=True),
    Flag("cudnn_conv_enable_true_half", BOOL, False,
         ALIAS("cudnn_conv_enable_pseudo_half", _INVERSE),
         "The opposite of cudnn_conv_enable_pseudo_half."),
    Flag("enable_cudnn_conv_pseudo_half", BOOL, True, ALIAS("cudnn_conv_enable_pseudo_half"),
         "Another name of cudnn_conv_enable_pseudo_half.", required=True),
    Flag("enable_true_half_config_when_conv", BOOL, False,
         ALIAS("cudnn_conv_enable_pseudo_half", _INVERSE),
         "Another name of cudnn_conv_enable_true_half."),
    Flag("cudnn_conv_force_fwd_algo", INT, None, IGNORED(_ALGORITHM),
         "Number of the forward algorithm."),
    Flag("cudnn_conv_force_bwd_data_algo", INT, None, IGNORED(_ALGORITHM),
         "Number of the data-gradient algorithm."),
    Flag("cudnn_conv_force_bwd_filter_algo", INT, None, IGNORED(_ALGORITHM),
         "Number of the filter-gradient algorithm."),
    Flag("enable_cudnn_fused_normalization_add_relu", BOOL, None, IGNORED(_FUSED),
         "Use cuDNN's fused normalization, addition and relu.", required=True),
    Flag("enable_float_compute_for_half_gemm", BOOL, True,
         IGNORED("ONNX Runtime accumulates half-precision matrix products in float32, unless the "
                 "process is started with ORT_CUDA_GEMM_OPTIONS=1", unless=(True,)),
         "Half-precision matrix product with float32 accumulation."),
)

_COMPILERS = (
    Flag("use_tensorrt", BOOL, False, PROVIDER("tensorrt", None, {True: True}),
         "Run what TensorRT can run there; meant for predict jobs."),
    Flag("tensorrt.use_fp16", BOOL, False, PROVIDER("tensorrt", "trt_fp16_enable", {True: "True"}),
         "Let TensorRT use float16.", also=_USES_TENSORRT),
    Flag("tensorrt.use_int8", BOOL, False, PROVIDER("tensorrt", "trt_int8_enable", {True: "True"}),
         "Let TensorRT use int8; it needs a calibration table.", also=_USES_TENSORRT),
    Flag("tensorrt.int8_calibration", STR, None,
         PROVIDER("tensorrt", "trt_int8_calibration_table_name"),
         "File name of the calibration table; one that TensorRT itself wrote also needs its option "
         "trt_int8_use_native_calibration_table.", needs="tensorrt.use_int8"),
    Flag("tensorrt.function_desc", NOTHING, None,
         IGNORED("it is the read-only view of all settings"),
         "Read-only view of the configuration."),
    Flag("use_xla_jit", BOOL, False,
         IGNORED("no XLA provider exists; ONNX Runtime fuses by itself, and on CUDA "
                 "runtime.enable_cuda_graph saves launches", unless=(False,)),
         "Run what XLA can run there."),
    Flag("use_openvino", BOOL, False, LATER("the OpenVINO provider is not wired up"),
         "Run what OpenVINO can run there."),
)

_DEVICES = (
    Flag("all_reduce_fp16", BOOL, True, RECORDED(_FULL_SUMS), "Reduce gradients in float16."),
    Flag("all_reduce_group_min_mbyte", NATURAL, 16, TRACE(_BUCKETS),
         "Least size of a group of gradients reduced together, in MiB."),
    Flag("all_reduce_group_num", POSITIVE, 8, TRACE(_BUCKETS), "Number of such groups."),
    Flag("all_reduce_group_size_warmup", POSITIVE_FLOAT, 2, TRACE(_BUCKETS),
         "By how much the first group is smaller than the others."),
    Flag("all_reduce_lazy_ratio", FLOAT, 0.5,
         IGNORED("no gradient is reduced during the next forward pass"),
         "Share of gradients reduced during the next forward pass."),
    Flag("enable_all_reduce_group", BOOL, True, TRACE(_BUCKETS),
         "Reduce gradients in groups."),
    Flag("disable_all_reduce_sequence", BOOL, False, IGNORED("the order of reductions is fixed"),
         "Let reductions run in any order."),
    Flag("enable_nccl", BOOL, True, IGNORED(_ONE_PROCESS), "Collective library switch."),
    Flag("use_nccl_inter_node_communication", BOOL, True, IGNORED(_ONE_PROCESS),
         "Use NCCL between machines."),
    Flag("use_boxing_v2", BOOL, False, IGNORED(_ONE_PROCESS), "Newer tensor redistribution."),
    Flag("enable_inplace_in_reduce_struct", BOOL, True, IGNORED(_ONE_PROCESS),
         "Reduce gradients in place."),
    Flag("enable_non_distributed_optimizer", BOOL, False,
         ALIAS("optimizer_placement_optimization_mode", {True: "non_distributed", False: None}),
         "Former name of optimizer_placement_optimization_mode('non_distributed')."),
    Flag("non_distributed_optimizer_group_size_mbyte", NATURAL, 100, IGNORED(_ONE_PROCESS),
         "Size of a group of the sharded optimizer, in MiB."),
    Flag("optimizer_placement_optimization_mode",
         Choice(("non_distributed", "distributed_split")), None, TRACE(_SHARDING),
         "How optimizer state is shared out between devices: in both modes each of N processes "
         "keeps an N-th of the slots of every variable, and moves that part of the variable."),
    Flag("optimizer_placement_optimization_threshold", NATURAL, 1024, TRACE(_SHARDING),
         "Least number of elements of a variable that is shared out."),
)

_REWRITES = (
    Flag("prune_parallel_cast_ops", BOOL, True, IGNORED(_MARKERS),
         "Drop parallel_cast operators that do nothing."),
    Flag("prune_cast_to_static_shape_ops", BOOL, True, IGNORED(_MARKERS),
         "Drop cast_to_static_shape operators that do nothing."),
    Flag("prune_amp_white_identity_ops", BOOL, True, IGNORED(_MARKERS),
         "Drop the markers of mixed precision."),
    Flag("do_parallel_cast_before_widening_type_cast", BOOL, True, IGNORED(_ONE_PROCESS),
         "Redistribute tensors before they are widened to float32."),
    Flag("enable_fuse_add_to_output", BOOL, False, IGNORED(_FUSED),
         "Fuse additions into what produces their input.", required=True),
    Flag("enable_fuse_model_update_ops", BOOL, False, IGNORED(_FUSED),
         "Fuse the operators of an update."),
    Flag("enable_fuse_cast_scale", BOOL, False, IGNORED(_FUSED), "Fuse casts and scalings."),
    Flag("enable_gradients_stats_aggregation", BOOL, True, IGNORED(_FUSED),
         "Compute all gradient norms in one operator."),
    Flag("enable_pseudo_chain_merge", BOOL, False, IGNORED("it steers OneFlow's own scheduler"),
         "Merge chains of operators."),
    Flag("ratio_sequantial_optimizers", FLOAT, 1.0, IGNORED("it steers OneFlow's own scheduler"),
         "Share of updates that run one after another."),
    Flag("exp_run_conf", EXPERIMENTAL_RUN, None, IGNORED("OneFlow itself could not be given one"),
         "Experimental run before the first."),
    Flag("__is_user_function__", BOOL, True, IGNORED("it marks OneFlow's internal jobs"),
         "Whether the job is the user's."),
)

_QUANTIZATION = (
    Flag("enable_quantization_aware_training", BOOL, False,
         TRACE("whether products read what eight bits hold of their operands"),
         "Insert fake quantization."),
    Flag("enable_qat", BOOL, False, ALIAS("enable_quantization_aware_training"),
         "Short name of enable_quantization_aware_training."),
    Flag("qat.per_channel_weight_quantization", BOOL, False, TRACE("number of scales of a weight"),
         "One scale for each output channel of a weight."),
    Flag("qat.symmetric", BOOL, True, TRACE("int8 with the zero point 0, or uint8 with any"),
         "Zero points at 0; for cambricon always."),
    Flag("qat.moving_min_max_momentum", FLOAT, 0.95, TRACE("how fast observed ranges move"),
         "Momentum of the observed ranges."),
    Flag("qat.moving_min_max_stop_update_after_iters", NATURAL, None,
         TRACE("step from which observed ranges stay"), "Steps after which the ranges stay."),
    Flag("qat.target_backend", Choice(("", "cuda", "tensorrt", "cambricon")), "",
         TRACE("scales that are powers of two, for cambricon"),
         "What the quantized job is made for."),
)

_PIPELINE = (
    Flag("enable_ssp", BOOL, False, LATER("a job is not split into stages"),
         "Stale-synchronous pipeline of stages."),
    Flag("ssp_partition_strategy", STR, "naive_sequential", LATER("a job is not split into stages"),
         "How the job is split into stages."),
    Flag("ssp_partition_scope_ids", NOTHING, (), IGNORED("OneFlow itself fills it in"),
         "Scopes of the stages."),
)
# fmt: on

FLAGS = Table(
    "function_config",
    "value",
    *(_TRACED + _TRAIN + _MEMORY + _CUDNN + _COMPILERS),
    *(_DEVICES + _REWRITES + _QUANTIZATION + _PIPELINE + RUNTIME_FLAGS),
)
