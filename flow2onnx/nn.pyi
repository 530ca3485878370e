"""`flow.nn`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def BCELoss(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], weight: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-(y ln x + (1 - y) ln(1 - x)) of probabilities x, times weight."""
def BCEWithLogitsLoss(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], weight: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, pos_weight: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """nn.BCELoss of sigmoid(x), with a weight for the positives of each class."""
def GRU(inputs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], hidden_size: _builtins.int, num_layers: _builtins.int = 1, bias: _builtins.bool = True, batch_first: _builtins.bool = False, dropout: _builtins.float = 0.0, bidirectional: _builtins.bool = False, hx: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None, trainable: _builtins.bool = True, name: _builtins.str = 'GRU') -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """Gated recurrent units as torch's: all outputs and the last h.

    Inputs are (time, batch, features), or (batch, time, features) with `batch_first`. Variables
    have torch's names, shapes and order of gates. `hx` are the first states, 0 unless given.
    """
def GroupNorm(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], num_groups: _builtins.int = 32, eps: _builtins.float = 1e-05, affine: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The channels of each sample normalised in groups, with variables ``_gamma`` and ``_beta``."""
def InstanceNorm1d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], eps: _builtins.float = 1e-05, affine: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Each channel of each sample normalised, with variables ``_gamma`` and ``_beta``."""
def InstanceNorm2d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], eps: _builtins.float = 1e-05, affine: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Each channel of each sample normalised, with variables ``_gamma`` and ``_beta``."""
def InstanceNorm3d(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], eps: _builtins.float = 1e-05, affine: _builtins.bool = True, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Each channel of each sample normalised, with variables ``_gamma`` and ``_beta``."""
def KLDivLoss(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], log_target: _builtins.bool = False, reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """y (ln y - x) of log-probabilities x, 0 where y is; with `log_target` y is a logarithm too."""
def L1Loss(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """|target - input|."""
def LSTM(inputs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], hidden_size: _builtins.int, num_layers: _builtins.int = 1, bias: _builtins.bool = True, batch_first: _builtins.bool = False, dropout: _builtins.float = 0.0, bidirectional: _builtins.bool = False, hx: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None, trainable: _builtins.bool = True, name: _builtins.str = 'LSTM') -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]]:
    """Long short-term memory: all outputs, and the last (h, c).

    Inputs are (time, batch, features), or (batch, time, features) with `batch_first`. Variables
    have torch's names, shapes and order of gates. `hx` are the first states, 0 unless given.
    """
def MSELoss(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """(target - input)²."""
def MarginRankingLoss(input1: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], input2: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], target: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 0.0, reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """max(0, margin - target (input1 - input2)); target is 1 or -1, and may be broadcast."""
def Module() -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
def PixelShuffle(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], upscale_factor: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Channels laid out as squares: (n, c r², h, w) becomes (n, c, h r, w r)."""
def PixelShufflev2(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], h_upscale_factor: _builtins.int, w_upscale_factor: _builtins.int, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Channels laid out as rectangles: (n, c r s, h, w) becomes (n, c, h r, w s)."""
def RNN(inputs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], hidden_size: _builtins.int, num_layers: _builtins.int = 1, bias: _builtins.bool = True, batch_first: _builtins.bool = False, dropout: _builtins.float = 0.0, bidirectional: _builtins.bool = False, hx: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]] | None = None, trainable: _builtins.bool = True, name: _builtins.str = 'RNN') -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """tanh(W x + b + R h + c) from step to step: all outputs and the last h.

    Inputs are (time, batch, features), or (batch, time, features) with `batch_first`. Variables
    have torch's names, shapes and order of gates. `hx` are the first states, 0 unless given.
    """
def TripletMarginLoss(anchor: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], positive: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], negative: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], margin: _builtins.float = 1.0, p: _builtins.float = 2.0, eps: _builtins.float = 1e-06, swap: _builtins.bool = False, reduction: _builtins.str = 'mean', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """max(0, margin + |anchor - positive| - |anchor - negative|) in the p-norm over axis 1."""
def avg_pool1d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCW', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Refuses, as OneFlow does."""
def avg_pool2d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCHW', ceil_mode: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The mean of each window, padding not counted."""
def avg_pool3d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCDHW', ceil_mode: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The mean of each window, padding not counted."""
def batch_normalization(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mean: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], variance: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], offset: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, variance_epsilon: _builtins.float = 1e-05, axis: _builtins.int = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, given a number for each channel."""
def bias_add(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], bias: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], data_format: _builtins.str | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A bias of one dimension added on axis 1, or on the last for a channels-last layout."""
def compat_conv2d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCHW', dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, groups: _builtins.int = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """nn.conv2d whose SAME puts the extra zeros after, as in TensorFlow."""
def conv1d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCW', dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, groups: _builtins.int = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """One spatial axis; filters (out, in/groups, k), or (out, k, in/groups) for NWC."""
def conv2d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCHW', dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, groups: _builtins.int = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Two spatial axes; filters (out, in/groups, kh, kw), or (out, kh, kw, in/groups) for NHWC."""
def conv2d_transpose(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, filter: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, output_shape: _collections_abc.Sequence[_builtins.int] | None = None, strides: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, padding: _builtins.str = 'VALID', data_format: _builtins.str = 'NCHW', name: _builtins.str | None = None, input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None) -> _flow2onnx_trace_blob.Blob:
    """The blob whose convolution has the shape of this one, of the extents in `output_shape`.

    Filters are (in, out, kh, kw), or (in, kh, kw, out) for NHWC. They give the channels: as in
    OneFlow, those of `output_shape` are not looked at.
    """
def conv3d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCDHW', dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, groups: _builtins.int = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Three spatial axes; filters (out, in/groups, kd, kh, kw), channels last for NDHWC."""
def ctc_greedy_decoder(log_probs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], input_lengths: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], merge_repeated: _builtins.bool = True, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """The labels of the likeliest path (batch, time), 0 after the last; and -sum of its logarithms.

    The last class is the blank.
    """
def distributed_sparse_softmax_cross_entropy_with_logits(labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-log softmax(logits)[label] of each sample; labels are class numbers."""
def dropout(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], rate: _builtins.float, noise_shape: _typing.Any = None, seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """In a train job, zeros with probability `rate` and x/(1-rate) elsewhere; else x."""
def elu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], alpha: _builtins.float = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x where it is positive, else alpha (e^x - 1)."""
def fused_bias_add_dropout(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], bias: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], data_format: _builtins.str | None = None, rate: _builtins.float = 0.0, noise_shape: _typing.Any = None, seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """nn.dropout(nn.bias_add(value, bias))."""
def fused_bias_add_gelu(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], bias: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], data_format: _builtins.str | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """math.gelu(nn.bias_add(value, bias))."""
def fused_scale_tril(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, scale: _builtins.float = 1, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`scale` times the lower triangle of each matrix; `fill_value`, not scaled, elsewhere."""
def fused_scale_tril_softmax_dropout(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, scale: _builtins.float = 1, rate: _builtins.float = 0.0, noise_shape: _typing.Any = None, seed: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The softmax of `fused_scale_tril` along the last axis, then `dropout`."""
def fused_self_attention_query_mul_key_and_value(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], head_size: _builtins.int, alpha: _builtins.float = 1.0, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """alpha q kᵀ and v by batch and head, of x (sequence, batch, heads x (q, k, v) x size)."""
def hardsigmoid(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """0 up to -3, 1 from 3 on, and a line between; flat at both corners."""
def hardswish(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x times hardsigmoid(x)."""
def hardtanh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], min_val: _builtins.float = -1.0, max_val: _builtins.float = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x limited to [min_val, max_val]."""
def layer_norm(inputs: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], gamma: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, beta: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, begin_norm_axis: _builtins.int = 1, begin_params_axis: _builtins.int = -1, epsilon: _builtins.float = 1e-05, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The dimensions from `begin_norm_axis` on normalised, times gamma, plus beta."""
def leaky_relu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], alpha: _builtins.float = 0.2, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x where it is positive, else alpha x."""
def logsoftmax(logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The logarithm of softmax."""
def max_pool1d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NWC', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """Refuses, as OneFlow does."""
def max_pool2d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCHW', ceil_mode: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The largest element of each window."""
def max_pool3d(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], ksize: _builtins.int | _collections_abc.Sequence[_builtins.int], strides: _builtins.int | _collections_abc.Sequence[_builtins.int], padding: _builtins.str | _collections_abc.Sequence[_builtins.int | _collections_abc.Sequence[_builtins.int]], data_format: _builtins.str = 'NCDHW', ceil_mode: _builtins.bool = False, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The largest element of each window."""
def mish(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x tanh(ln(1 + e^x))."""
def moments(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axes: _builtins.list[_builtins.int], keepdims: _builtins.bool = False, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """The mean and the biased variance over `axes`."""
def random_mask_like(like: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], rate: _builtins.float, seed: _builtins.int | None = None, noise_shape: _typing.Any = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """In the shape of `like` 0 with probability `rate`, else 1, int8; drawn anew at each call."""
def relu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """max(x, 0)."""
def relu6(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x limited to [0, 6]."""
def sigmoid_cross_entropy_with_logits(labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """max(x, 0) - x z + ln(1 + e^-|x|) of each element; labels may be whole numbers."""
def softmax(logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """e^x over its sum along `axis`, the last unless said."""
def softmax_cross_entropy_with_logits(labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-sum(labels * log softmax(logits)) over the last axis."""
def softmax_grad(y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of a softmax `y` along `axis`, the last unless said: y (dy - sum(dy y))."""
def sparse_cross_entropy(labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], prediction: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-log prediction[label] of each sample; predictions are probabilities already."""
def sparse_softmax_cross_entropy_with_logits(labels: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], logits: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """-log softmax(logits)[label] of each sample; labels are class numbers."""
def swish(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], beta: _builtins.float = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x times sigmoid(beta x)."""
def torch_conv2d_transpose(value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, filter: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, output_padding: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, strides: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, padding_needed: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None, data_format: _builtins.str = 'NCHW', name: _builtins.str | None = None, input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, filters: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | None = None, dilations: _builtins.int | _collections_abc.Sequence[_builtins.int] | None = None) -> _flow2onnx_trace_blob.Blob:
    """A transposed convolution cut by `padding_needed` in all, and longer by `output_padding`."""
def tril(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], diagonal: _builtins.int = 0, fill_value: _builtins.float = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The lower triangle of each matrix, its diagonal shifted up; `fill_value` elsewhere."""
