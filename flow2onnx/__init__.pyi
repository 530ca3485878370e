"""flow2onnx: OneFlow job functions on the stock ONNX Runtime.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx._checkpoint as _flow2onnx__checkpoint
import flow2onnx._data as _flow2onnx__data
import flow2onnx.api.job as _flow2onnx_api_job
import flow2onnx.api.models as _flow2onnx_api_models
import flow2onnx.api.scope as _flow2onnx_api_scope
import flow2onnx.api.user_op as _flow2onnx_api_user_op
import flow2onnx.checkpoint.store as _flow2onnx_checkpoint_store
import flow2onnx.config.function_config as _flow2onnx_config_function_config
import flow2onnx.config.settings as _flow2onnx_config_settings
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import flow2onnx.trace.host_blob as _flow2onnx_trace_host_blob
import flow2onnx.trace.initializers as _flow2onnx_trace_initializers
import flow2onnx.trace.variables as _flow2onnx_trace_variables
import numpy as _numpy
import numpy.typing as _numpy_typing
import os as _os
import typing as _typing
import typing_extensions as _typing_extensions

from flow2onnx.trace.blob import Blob as Blob
ExecutionConfig = _flow2onnx_config_function_config.FunctionConfig
def FixedTensorDef(shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType = ..., batch_axis: _builtins.int | None = 0, split_axis: _typing.Any = 'same_with_batch_axis', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """One array of exactly this shape."""
from flow2onnx.config.function_config import FunctionConfig as FunctionConfig
def MirroredTensorDef(shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType = ..., batch_axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A list of one array per device, of at most this shape."""
def MirroredTensorListDef(shape: _builtins.tuple[_builtins.int, ...], dtype: _flow2onnx_dtypes.DType = ..., batch_axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A list of one list of arrays per device."""
def Model(*args: _typing.Any, **kwargs: _typing.Any) -> _typing.NoReturn:
    """Not available: the trainer classes of 0.4.0 are not available in this version; write the loop over calls of a train job and a predict job."""
from flow2onnx.trace.blob import Size as Size
__version__: str
def acc(one: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], max_acc_num: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sum of the values of `max_acc_num` sub-steps."""
from flow2onnx.engine import accelerate as accelerate
from flow2onnx import advanced as advanced
def amp_white_identity(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself, which mixed precision rounds to half precision as before a product."""
def argsort(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = -1, direction: _builtins.str = 'ASCENDING', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Where the values in order along `axis` stand; of equal ones the first comes first."""
def argwhere(condition: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The coordinates of all elements that are not 0, a row each: how many is known at the call."""
def assign(ref: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> None:
    """After this call variable `ref` holds `value`; reads in the same call see the old value."""
bfloat16: _flow2onnx_dtypes.DType
def broadcast_like(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], broadcast_axes: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`x` repeated to the shape of `like`; `broadcast_axes` are those of `like` that `x` lacks."""
def broadcast_to_compatible_with(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], compatible: _builtins.list[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`x` repeated to the shape that arithmetic of it with all of `compatible` would have."""
def builtin_op(op_type_name: _typing.Any, op_name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
def cast(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Another element type; real numbers lose their fraction on the way to whole ones."""
def cast_to_current_logical_view(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]) -> _flow2onnx_trace_blob.Blob:
    """The blob itself: on one device both views hold the same values."""
def cast_to_static_shape(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value in its upper bound's shape: what a run does not fill is 0."""
def categorical_ordinal_encode(table: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], input_tensor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], hash_precomputed: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Numbers from 1 on in order of appearance, over all calls; 0 for the key 0.

    `table` (2 x capacity) and `size` (1) are variables, which hold what was numbered.
    """
char: _flow2onnx_dtypes.DType
checkpoint = _flow2onnx__checkpoint
def clamp(values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_value: _builtins.float | None = None, max_value: _builtins.float | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Limit every element to [min_value, max_value]; either end may be open."""
def clear_default_session() -> None:
    """Wait for outstanding work; forget jobs and variables; begin a new session."""
def clip(values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_value: _builtins.float | None = None, max_value: _builtins.float | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Limit every element to [min_value, max_value]; either end may be open."""
def clip_by_scalar(values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_value: _builtins.float | None = None, max_value: _builtins.float | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Limit every element to [min_value, max_value]; either end may be open."""
def clip_by_value(values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_value: _builtins.float | None = None, max_value: _builtins.float | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Limit every element to [min_value, max_value]; either end may be open."""
def combined_margin_loss(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], label: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], m1: _builtins.float = 1, m2: _builtins.float = 0, m3: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x = cos t with cos(m1 t + m2) - m3 at the label of each sample."""
def concat(inputs: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None, axis: _builtins.int = 0, max_dim_size: _builtins.int | None = None, name: _builtins.str | None = None, values: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None) -> _flow2onnx_trace_blob.Blob:
    """The values one after another along `axis`."""
config: _flow2onnx_config_settings.SettingsFacade
@_typing_extensions.deprecated("use flow.user_op_builder")
def consistent_user_op_builder(op_name: _builtins.str) -> _flow2onnx_api_user_op.UserOpConfBuilder:
    """A builder of the operator called `op_name`."""
def consistent_user_op_module_builder(op_type_name: _typing.Any) -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
def constant(value: _typing.Any, dtype: _flow2onnx_dtypes.DType | None = None, shape: _collections_abc.Sequence[_builtins.int] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A filled blob, of shape (1,) unless told otherwise; an array or a list is what it holds."""
def constant_initializer(value: _builtins.float = 0, dtype: _flow2onnx_dtypes.DType = ...) -> _flow2onnx_trace_initializers.Initializer:
    """Every element is `value`."""
def constant_like(like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], value: _builtins.float, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A filled blob of the shape, and unless told otherwise the element type, of `like`."""
def constant_pad2d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], padding: _builtins.int | _collections_abc.Sequence[_builtins.int], constant_value: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A frame of `constant_value` around each image; four sides are left, right, top, bottom."""
def constant_scalar(value: _builtins.float, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A filled blob of shape (1,)."""
def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: _flow2onnx_dtypes.DType) -> _numpy.dtype:
    """The numpy dtype of an element type."""
@_typing_extensions.deprecated("use flow.identity")
def copy(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself."""
def count_not_finite(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The number of elements that are infinite or NaN, int64."""
def ctc_loss(log_probs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], targets: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], input_lengths: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_lengths: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], blank: _builtins.int = 0, reduction: _builtins.str = 'mean', zero_infinity: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-ln of the probability that log_probs (time, batch, classes) spell each row of `targets`."""
def current_global_function_desc() -> _typing.Any:
    """The configuration of the job being traced; `IsTrainable()` is True for a train job."""
def current_machine_id() -> _builtins.int:
    """The number of this machine among those that run the processes of a job."""
def current_resource() -> _builtins.dict[_builtins.str, _typing.Any]:
    """Every setting of `flow.config` with its value."""
def current_scope() -> _flow2onnx_api_scope.Scope:
    """The scope at this place of the job being traced."""
data = _flow2onnx__data
from flow2onnx import deprecated as deprecated
from flow2onnx import detection as detection
@_typing_extensions.deprecated("use flow.scope.placement")
def device_prior_placement(device_tag: _builtins.str, machine_device_ids: _builtins.str | _collections_abc.Sequence[_builtins.str], hierarchy: _typing.Any = None) -> _flow2onnx_api_scope.Placement:
    """``placement("gpu", "0:0")``: a device tag and one or several ``machine:device`` ranges.

    The jobs of a session run on one kind of device, the GPU if anything is placed there. Of a train
    job that several processes share, the one that plays the device computes what is placed there,
    and keeps the variables made there.
    """
def diag(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The diagonal of a matrix, or a matrix with this diagonal; positive ones lie above."""
def dim0_dynamic_to_fixed(inputs: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
def dim_gather(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dim: _builtins.int, index: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """For each element of `index` the element of `input` with that coordinate in axis `dim`."""
from flow2onnx import distribute as distribute
from flow2onnx import distributed as distributed
def distributed_partial_fc_sample(weight: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], label: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_sample: _builtins.int, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """Of all classes those in `label`, and others drawn anew at each call, `num_sample` in all.

    Gives the position of each label among them, their numbers, and their rows of `weight`.
    """
double: _flow2onnx_dtypes.DType
def dtypes() -> _builtins.list[_flow2onnx_dtypes.DType]:
    """The element types a job can use."""
def dynamic_reshape(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], shape: _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`reshape` of a blob whose shape is known at the call only; one dimension may be -1."""
def eager_execution_enabled() -> _builtins.bool:
    """True if jobs run operator by operator: never here."""
def eager_fixed_placement(device_tag: _typing.Any, machine_device_ids: _typing.Any) -> _typing.NoReturn:
    """Not available: operators do not run one at a time; use flow.scope.placement in the body of a job."""
def eager_nccl_all_reduce(x: _typing.Any, parallel_conf: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: a job runs on one device in this version; leave it out: there is nothing to sum over."""
def elem_cnt(inputs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The number of elements at the call, shape (1,), int32 unless said."""
def empty_initializer(dtype: _flow2onnx_dtypes.DType = ...) -> _flow2onnx_trace_initializers.Initializer:
    """Any value, where OneFlow leaves memory as it is: every element is 0."""
def enable_eager_execution(val: _builtins.bool = True) -> None:
    """Let a function be decorated anew at each call; it is traced once and compiled even so."""
env: _flow2onnx_config_settings.SettingsFacade
def expand(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], expand_size: _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`x` repeated to `expand_size`; -1 keeps a dimension, new ones may lead."""
def expand_dims(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A dimension of 1 inserted at `axis`."""
from flow2onnx import experimental as experimental
def find_or_create_module(module_name: _typing.Any, create: _typing.Any, reuse: _typing.Any = False) -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
@_typing_extensions.deprecated("use flow.scope.placement")
def fixed_placement(device_tag: _builtins.str, machine_device_ids: _builtins.str | _collections_abc.Sequence[_builtins.str], hierarchy: _typing.Any = None) -> _flow2onnx_api_scope.Placement:
    """``placement("gpu", "0:0")``: a device tag and one or several ``machine:device`` ranges.

    The jobs of a session run on one kind of device, the GPU if anything is placed there. Of a train
    job that several processes share, the one that plays the device computes what is placed there,
    and keeps the variables made there.
    """
def flatten(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], start_dim: _builtins.int = 0, end_dim: _builtins.int = -1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Dimensions start_dim to end_dim, both included, made one."""
float: _flow2onnx_dtypes.DType
float16: _flow2onnx_dtypes.DType
float32: _flow2onnx_dtypes.DType
float64: _flow2onnx_dtypes.DType
from flow2onnx.imported import from_training_info as from_training_info
def function(function_config: _flow2onnx_config_function_config.FunctionConfig | None = None) -> _collections_abc.Callable[[_collections_abc.Callable[..., _typing.Any]], _flow2onnx_api_job.JobFunction]:
    """Make a function a job; it trains if some ``config.train`` setting was made."""
function_config = _flow2onnx_config_function_config.FunctionConfig
def gather(params: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], validate_indices: _typing.Any = None, axis: _builtins.int | None = None, batch_dims: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The slices of `params` along `axis` that `indices` name."""
def gather_nd(params: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The slices of `params` whose coordinates the last axis of `indices` holds."""
def gen_tensor_buffer(shape: _typing.Any, shape_list: _typing.Any, value_list: _typing.Any, data_type: _typing.Any = ..., dynamic_out: _typing.Any = False, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: a tensor buffer holds arrays of different sizes, which no ONNX tensor does; pad the arrays to one shape on the host, and feed them through a placeholder."""
def get_all_variables() -> _builtins.dict[_builtins.str, _flow2onnx_api_models.VariableBlob]:
    """Every variable of the session by name, optimizer state and step counters included."""
def get_variable(name: _builtins.str, shape: _collections_abc.Sequence[_builtins.int] | None = None, dtype: _flow2onnx_dtypes.DType | None = ..., initializer: _flow2onnx_trace_initializers.Initializer | _builtins.str | None = None, regularizer: _flow2onnx_trace_variables.Regularizer | _builtins.str | None = None, trainable: _builtins.bool | None = None, model_name: _builtins.str | None = None, random_seed: _builtins.int | None = None, parallel_distribution: _typing.Any = None, distribute: _typing.Any = None, reuse: _builtins.bool = True) -> _flow2onnx_trace_blob.Blob:
    """The variable called `name` below the current namespaces, shared by all jobs that name it."""
def global_function(type: _builtins.str | _flow2onnx_config_function_config.FunctionConfig = 'predict', function_config: _flow2onnx_config_function_config.FunctionConfig | None = None) -> _collections_abc.Callable[[_collections_abc.Callable[..., _typing.Any]], _flow2onnx_api_job.JobFunction]:
    """Make a function a job: ``type="train"`` or ``"predict"``, under a configuration.

    With a configuration as the only argument, as up to 0.1.5, the job trains if some
    ``config.train`` setting was made.
    """
def glorot_normal_initializer(data_format: _builtins.str = '') -> _flow2onnx_trace_initializers.Initializer:
    """Normal with variance 1 / mean of fan-in and fan-out."""
def glorot_uniform_initializer(data_format: _builtins.str = '') -> _flow2onnx_trace_initializers.Initializer:
    """Uniform with variance 1 / mean of fan-in and fan-out."""
from flow2onnx.imported import grad as grad
def hierarchical_parallel_cast(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], parallel_distribution: _typing.Any, grad_mode: _builtins.str | None = None, grad_parallel_distribution: _typing.Any = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself, which processes hold as the one hint in `parallel_distribution` says."""
from flow2onnx.imported import hvp as hvp
def identity(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself."""
def identity_n(inputs: _builtins.list[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], name: _builtins.str | None = None) -> _builtins.list[_flow2onnx_trace_blob.Blob]:
    """The values themselves."""
from flow2onnx import image as image
def image_batch_align(images: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], shape: _collections_abc.Sequence[_builtins.int], dtype: _flow2onnx_dtypes.DType, alignment: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images of different sizes in one array of `shape`, zeros at their right and bottom.

    OneFlow's result was only as large as the largest image rounded up to `alignment`; a size that
    is fixed is what runtimes want.
    """
def image_decode(images_bytes_buffer: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType = ..., color_space: _builtins.str = 'BGR', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The images in buffers of bytes, such as `flow.data.OFRecordBytesDecoder` makes."""
def image_flip(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images mirrored: code 1 left and right, 16 top and bottom, 17 both, 0 as they are."""
def image_normalize(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], std: _builtins.float | _collections_abc.Sequence[_builtins.float], mean: _builtins.float | _collections_abc.Sequence[_builtins.float], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Images apart, float32: less the mean of each channel, over its standard deviation."""
def image_random_crop(input_blob: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_attempts: _builtins.int = 10, seed: _builtins.int | None = None, random_area: _collections_abc.Sequence[_builtins.float] | None = None, random_aspect_ratio: _collections_abc.Sequence[_builtins.float] | None = None, name: _builtins.str | None = 'ImageRandomCrop') -> _flow2onnx_trace_blob.Blob:
    """A random part of each image, another one at each call."""
def image_resize(image: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_size: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, min_size: _builtins.int | None = None, max_size: _builtins.int | None = None, keep_aspect_ratio: _builtins.bool = False, resize_side: _builtins.str = 'shorter', channels: _builtins.int = 3, dtype: _flow2onnx_dtypes.DType | None = None, interpolation_type: _builtins.str = 'auto', name: _builtins.str | None = None, color_space: _builtins.str | None = None, interp_type: _builtins.str | None = None, resize_shorter: _builtins.int = 0, resize_x: _builtins.int = 0, resize_y: _builtins.int = 0) -> _typing.Any:
    """Images in another size, their factors (horizontal, vertical), and their new sizes or None.

    `target_size` is (width, height), and the result one array; with `keep_aspect_ratio` it is that
    of one side, and the images stay apart, with their sizes (width, height). With any of the
    parameters after `name`, which are those of old, only the images are returned.
    """
def image_target_resize(images: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target_size: _builtins.int, min_size: _builtins.int | None = None, max_size: _builtins.int | None = None, resize_side: _builtins.str = 'shorter', interpolation_type: _builtins.str = 'auto', name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_host_blob.HostBlob, ...]:
    """Images of which one side has the target size, their new sizes (width, height), factors."""
def in_top_k(targets: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], predictions: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], k: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1 for each sample whose target has fewer than `k` classes above it, ties not counted.

    0 where a prediction is not finite or the target is no class.
    """
int: _flow2onnx_dtypes.DType
int32: _flow2onnx_dtypes.DType
int64: _flow2onnx_dtypes.DType
int8: _flow2onnx_dtypes.DType
def inter_job_reuse_mem_strategy(strategy_str: _builtins.str, job_set: _typing.Any = None, **kwargs: _builtins.list[_typing.Any]) -> None:
    """Nothing: ONNX Runtime plans memory itself."""
def is_deprecated(func_or_class: _collections_abc.Callable[..., _typing.Any]) -> _builtins.bool:
    """True for a retired name."""
from flow2onnx.imported import jacobian as jacobian
from flow2onnx.imported import jvp as jvp
def kaiming_initializer(shape: _builtins.tuple[_builtins.int, ...], distribution: _builtins.str = 'random_normal', mode: _builtins.str = 'fan_in', nonlinearity: _builtins.str = 'leaky_relu', negative_slope: _builtins.float = 0.0, data_format: _builtins.str = 'NCHW') -> _flow2onnx_trace_initializers.Initializer:
    """Standard deviation gain / sqrt(fan) of a weight of `shape`."""
from flow2onnx import keras as keras
from flow2onnx import layers as layers
from flow2onnx import linalg as linalg
def load(path: _builtins.str | _os.PathLike[_builtins.str]) -> _builtins.dict[_builtins.str, _flow2onnx_checkpoint_store.SavedVariable] | _flow2onnx_checkpoint_store.SavedVariable:
    """The variables of a checkpoint by name, or one if `path` is a variable's own directory."""
def load_variables(value_dict: _collections_abc.Mapping[_builtins.str, _typing.Any], ignore_mismatch: _builtins.bool = True) -> None:
    """Give variables the values of arrays or of saved variables; all of them or none.

    Shapes and dtypes must match exactly. Names that are no variable are skipped with a warning in
    the log, or refused when `ignore_mismatch` is off; if no name is one, that is an error.
    """
def local_gather(params: _typing.Any, indices: _typing.Any, axis: _typing.Any = 0, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: gathering within the piece of each device is gone since 0.1.1; use flow.gather, which is the same on one device."""
from flow2onnx.imported import lora as lora
from flow2onnx.imported import lora_network as lora_network
from flow2onnx import losses as losses
from flow2onnx.imported import make_trainable as make_trainable
def masked_fill(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mask: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], value: _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`value` where `mask` is not 0, else `x`."""
from flow2onnx import math as math
def matmul(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], b: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], transpose_a: _builtins.bool = False, transpose_b: _builtins.bool = False, alpha: _typing.Any = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The matrix product over the last two axes, times `alpha`."""
from flow2onnx import model as model
def multi_count_not_finite(x: _builtins.list[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The number of elements of several blobs that are infinite or NaN, int64."""
@_typing_extensions.deprecated("use flow.scope.namespace")
def name_scope(name: _builtins.str) -> _collections_abc.Iterator[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
from flow2onnx import nn as nn
def nonzero(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The coordinates of all elements that are not 0, a column each."""
def object_bbox_flip(bbox: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Boxes on mirrored images of `image_size` (width, height); codes as for `flow.image.flip`."""
def object_bbox_scale(bbox: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Boxes times the factors that a resize gave."""
def object_segmentation_polygon_flip(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], flip_code: _builtins.int | _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The points of polygons on mirrored images of `image_size` (width, height)."""
def object_segmentation_polygon_scale(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The points of polygons times the factors that a resize gave."""
def object_segmentation_polygon_to_mask(poly: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], poly_index: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], image_size: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """For each image a mask (objects, height, width), int8; `image_size` is (width, height)."""
def one_hot(indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], depth: _builtins.int, on_value: _builtins.float = 1, off_value: _builtins.float = 0, axis: _builtins.int = -1, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A new axis of length `depth` that holds `on_value` at the index and `off_value` elsewhere."""
def ones(shape: _collections_abc.Sequence[_builtins.int], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Ones."""
def ones_initializer(dtype: _flow2onnx_dtypes.DType = ...) -> _flow2onnx_trace_initializers.Initializer:
    """Every element is 1."""
def ones_like(like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Ones of the shape of `like`."""
from flow2onnx import onnx as onnx
from flow2onnx import optimizer as optimizer
def pack(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], pack_num: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The values of `pack_num` sub-steps one behind the other along axis 0."""
def pad(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], paddings: _collections_abc.Sequence[_collections_abc.Sequence[_builtins.int]], constant_value: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """As many of `constant_value` before and after each axis as its pair in `paddings` says."""
def pad_grad(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], paddings: _collections_abc.Sequence[_collections_abc.Sequence[_builtins.int]], constant_value: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The part inside the padding: the undoing of `pad`."""
def parallel_cast(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None, distribute: _typing.Any = None, gradient_distribute: _typing.Any = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself, which processes hold as `distribute` says."""
def piece_slice(inputs: _typing.Any, output_size: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
from flow2onnx import placement as placement
from flow2onnx import profiler as profiler
from flow2onnx import quantization as quantization
from flow2onnx import random as random
def random_normal_initializer(mean: _builtins.float = 0.0, stddev: _builtins.float = 1.0, seed: None = None, dtype: None = None) -> _flow2onnx_trace_initializers.Initializer:
    """Normal with this mean and standard deviation."""
def random_uniform_initializer(minval: _builtins.float = 0, maxval: _builtins.float = 1, dtype: _flow2onnx_dtypes.DType = ...) -> _flow2onnx_trace_initializers.Initializer:
    """Uniform on [minval, maxval); whole numbers for an integer variable."""
def range(start: _builtins.int, limit: _builtins.int | None = None, delta: _builtins.int = 1, dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = 'range') -> _flow2onnx_trace_blob.Blob:
    """The whole numbers from `start` (0, given one number) below `limit` by `delta`, int64."""
record: _flow2onnx_dtypes.DType
def reflection_pad2d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], padding: _builtins.int | _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Each image mirrored at its border; four sides are left, right, top, bottom."""
from flow2onnx import regularizers as regularizers
def repeat(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], repeat_num: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The same value in each of `repeat_num` sub-steps, as variables are read in all of them."""
def replication_pad2d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], padding: _builtins.int | _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The border of each image repeated around it; four sides are left, right, top, bottom."""
def reshape(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], shape: _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The same elements in another shape; one dimension may be -1."""
def reshape_like(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The elements of `x` in the shape of `like`."""
def reverse(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The elements along `axis` from the last to the first."""
def same_padding(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], padding: _builtins.str, data_format: _builtins.str, kernel_size: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], dilation_rate: _builtins.int | _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The zeros around `x` that a convolution padded SAME_LOWER or SAME_UPPER adds."""
def save(obj: _collections_abc.Mapping[_builtins.str, _typing.Any], save_dir: _builtins.str | _os.PathLike[_builtins.str]) -> None:
    """`save` with the arguments the other way round."""
from flow2onnx import saved_model as saved_model
def scatter_nd(indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], updates: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], shape: _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Zeros of `shape` with `updates` added where `indices` point."""
from flow2onnx import scope as scope
from flow2onnx import serving as serving
def sleep_identity(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], seconds: _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself, at once: a model cannot sleep."""
def slice(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], begin: _collections_abc.Sequence[_builtins.int | None], size: _collections_abc.Sequence[_builtins.int | None], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """From `begin` (None: the start) as many as `size` (None or -1: all that follow), per axis."""
def slice_update(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], update: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], slice_tup_list: _collections_abc.Sequence[_builtins.tuple[_builtins.int | None, _builtins.int | None, _builtins.int | None]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`x` with `update` in place of the part that `slice_v2` would give."""
def slice_v2(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], slice_tup_list: _collections_abc.Sequence[_builtins.tuple[_builtins.int | None, _builtins.int | None, _builtins.int | None]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """One (start, stop, step) for each leading axis; None leaves an end open."""
def smooth_l1_loss(prediction: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], label: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], beta: _builtins.float = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2, of d = prediction - label; not reduced."""
def sort(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = -1, direction: _builtins.str = 'ASCENDING', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The values in order along `axis`."""
def squeeze(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _collections_abc.Sequence[_builtins.int] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Dimensions of 1 removed: those named, or all."""
def stack(inputs: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Values of one shape along a new axis."""
from flow2onnx import summary as summary
def sync_default_session() -> None:
    """Wait until everything that was called has finished."""
def sync_dynamic_resize(inputs: _typing.Any, size: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
from flow2onnx import sysconfig as sysconfig
from flow2onnx import system as system
tensor_buffer: _flow2onnx_dtypes.DType
def tensor_buffer_to_list_of_tensors(x: _typing.Any, out_shape: _typing.Any, out_dtype: _typing.Any, dynamic_out: _typing.Any = False, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: a tensor buffer holds arrays of different sizes, which no ONNX tensor does; pad the arrays to one shape on the host, and feed them through a placeholder."""
def tensor_buffer_to_tensor(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType, instance_shape: _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Buffers that all have the instance shape, as one array."""
def tensor_buffer_to_tensor_list(input: _typing.Any, shape: _typing.Any, dtype: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
def tensor_list_split(input_tensor_list: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
def tensor_list_to_tensor_buffer(input: _typing.Any, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
def tensor_scatter_nd_add(params: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], updates: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`params` with `updates` added where `indices` point."""
def tensor_scatter_nd_update(params: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], updates: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`params` with `updates` in place of what `indices` point to."""
def tensor_to_tensor_buffer(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], instance_dims: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """An array's last `instance_dims` axes as buffers, one for each element of the others."""
from flow2onnx import tensorrt as tensorrt
from flow2onnx import train as train
def transpose(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], perm: _collections_abc.Sequence[_builtins.int] | None = None, conjugate: _builtins.bool = False, batch_axis_non_change: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The axes in the order `perm`."""
def truncated_normal(stddev: _builtins.float = 1.0) -> _flow2onnx_trace_initializers.Initializer:
    """Normal around 0, cut at two standard deviations."""
def truncated_normal_initializer(mean: _builtins.float = 0.0, stddev: _builtins.float = 1.0) -> _flow2onnx_trace_initializers.Initializer:
    """Normal, cut at two standard deviations."""
from flow2onnx import typing as typing
uint8: _flow2onnx_dtypes.DType
def unique_str(prefix: _builtins.str) -> _builtins.str:
    """`prefix` and a number that this session has not used with it."""
def unpack(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], unpack_num: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Equal pieces along axis 0, one in each of `unpack_num` sub-steps."""
def unsorted_batch_segment_sum(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_segments: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`unsorted_segment_sum` over the last axis of `segment_ids`, for each of those before it."""
def unsorted_segment_sum(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_segments: _builtins.int, axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sums of the slices of `data` along `axis` that have the same number."""
def unsorted_segment_sum_like(data: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], segment_ids: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`unsorted_segment_sum` with as many segments as `like` has along `axis`."""
def user_op_builder(op_name: _builtins.str) -> _flow2onnx_api_user_op.UserOpConfBuilder:
    """A builder of the operator called `op_name`."""
def user_op_module_builder(op_type_name: _typing.Any) -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
from flow2onnx import util as util
def variance_scaling_initializer(scale: _builtins.float = 1.0, mode: _builtins.str = 'fan_in', distribution: _builtins.str = 'truncated_normal', data_format: _builtins.str = '') -> _flow2onnx_trace_initializers.Initializer:
    """Variance `scale` / fan. `data_format` changes nothing, as in OneFlow from 0.3 on."""
from flow2onnx.imported import vjp as vjp
def watch(blob_watched: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], handler_or_prompt: _collections_abc.Callable[[_typing.Any], _typing.Any] | _builtins.str | None = None) -> None:
    """Show the value of a blob at each call, before the job's result is delivered.

    A handler has one parameter, annotated ``tp.Numpy`` or ``tp.ListNumpy``; without an annotation
    it gets a local blob. A text is printed before the value.
    """
def watch_diff(blob_watched: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], handler_or_prompt: _collections_abc.Callable[[_typing.Any], _typing.Any] | _builtins.str | None = None) -> None:
    """Show the gradient of a blob at each call of a train job.

    It is the gradient of the sum of all loss elements, not yet divided by their number.
    """
def watch_scope(blob_watcher: _typing.Any = None, diff_blob_watcher: _typing.Any = None) -> _typing.NoReturn:
    """Not available: watching every blob made in a scope is gone since 0.1.3; call flow.watch and flow.watch_diff on the blobs."""
def where(condition: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x where `condition` is not 0, else y, broadcast; without both, what `argwhere` gives."""
def xavier_normal_initializer(data_format: _builtins.str = '') -> _flow2onnx_trace_initializers.Initializer:
    """Normal with variance 1 / mean of fan-in and fan-out."""
def xavier_uniform_initializer(data_format: _builtins.str = '') -> _flow2onnx_trace_initializers.Initializer:
    """Uniform with variance 1 / mean of fan-in and fan-out."""
def zero_pad2d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], padding: _builtins.int | _collections_abc.Sequence[_builtins.int], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A frame of zeros around each image; four sides are left, right, top, bottom."""
def zeros(shape: _collections_abc.Sequence[_builtins.int], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Zeros."""
def zeros_initializer(dtype: _flow2onnx_dtypes.DType = ...) -> _flow2onnx_trace_initializers.Initializer:
    """Every element is 0."""
def zeros_like(like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dtype: _flow2onnx_dtypes.DType | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Zeros of the shape of `like`."""
