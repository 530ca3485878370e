"""`flow.experimental`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.dtypes as _flow2onnx_dtypes
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy as _numpy
import numpy.typing as _numpy_typing
import typing as _typing
import typing_extensions as _typing_extensions

from flow2onnx import Blob as Blob
from flow2onnx import ExecutionConfig as ExecutionConfig
from flow2onnx import FixedTensorDef as FixedTensorDef
from flow2onnx import FunctionConfig as FunctionConfig
from flow2onnx import MirroredTensorDef as MirroredTensorDef
from flow2onnx import MirroredTensorListDef as MirroredTensorListDef
from flow2onnx import Model as Model
from flow2onnx import Size as Size
from flow2onnx import acc as acc
from flow2onnx import advanced as advanced
from flow2onnx import amp_white_identity as amp_white_identity
from flow2onnx import argsort as argsort
from flow2onnx import argwhere as argwhere
from flow2onnx import assign as assign
from flow2onnx import bfloat16 as bfloat16
from flow2onnx import broadcast_like as broadcast_like
def broadcast_maximum(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], b: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The larger of each pair: an early name of `math.maximum`."""
def broadcast_minimum(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], b: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The smaller of each pair: an early name of `math.minimum`."""
from flow2onnx import broadcast_to_compatible_with as broadcast_to_compatible_with
from flow2onnx import builtin_op as builtin_op
from flow2onnx import cast as cast
from flow2onnx import cast_to_current_logical_view as cast_to_current_logical_view
from flow2onnx import cast_to_static_shape as cast_to_static_shape
from flow2onnx import categorical_ordinal_encode as categorical_ordinal_encode
from flow2onnx import char as char
from flow2onnx import checkpoint as checkpoint
from flow2onnx import clamp as clamp
from flow2onnx import clear_default_session as clear_default_session
from flow2onnx import clip as clip
from flow2onnx import clip_by_scalar as clip_by_scalar
from flow2onnx import clip_by_value as clip_by_value
from flow2onnx import combined_margin_loss as combined_margin_loss
from flow2onnx import concat as concat
from flow2onnx import config as config
from flow2onnx import consistent_user_op_builder as consistent_user_op_builder
from flow2onnx import consistent_user_op_module_builder as consistent_user_op_module_builder
from flow2onnx import constant as constant
from flow2onnx import constant_initializer as constant_initializer
from flow2onnx import constant_like as constant_like
from flow2onnx import constant_pad2d as constant_pad2d
from flow2onnx import constant_scalar as constant_scalar
from flow2onnx import convert_oneflow_dtype_to_numpy_dtype as convert_oneflow_dtype_to_numpy_dtype
from flow2onnx import copy as copy
from flow2onnx import count_not_finite as count_not_finite
from flow2onnx import ctc_loss as ctc_loss
from flow2onnx import current_global_function_desc as current_global_function_desc
from flow2onnx import current_machine_id as current_machine_id
from flow2onnx import current_resource as current_resource
from flow2onnx import current_scope as current_scope
def custom_op_module(op_module_name: _typing.Any, module_path: _typing.Any = '') -> _typing.NoReturn:
    """Not available: operators compiled for OneFlow cannot run on ONNX Runtime; compose the operator from flow operators inside the job."""
from flow2onnx import data as data
from flow2onnx import deprecated as deprecated
from flow2onnx import detection as detection
from flow2onnx import device_prior_placement as device_prior_placement
from flow2onnx import diag as diag
from flow2onnx import dim0_dynamic_to_fixed as dim0_dynamic_to_fixed
from flow2onnx import dim_gather as dim_gather
from flow2onnx import distribute as distribute
from flow2onnx import distributed as distributed
from flow2onnx import distributed_partial_fc_sample as distributed_partial_fc_sample
from flow2onnx import double as double
from flow2onnx import dtypes as dtypes
def dynamic_binary_concat(input_blob_list: _typing.Any, source_blob: _typing.Any, source_sbp: _typing.Any = 'S:0', name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
def dynamic_binary_split(x: _typing.Any, base_shift: _typing.Any = 2, out_num: _typing.Any = 2, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: tensor lists, which OneFlow itself removed at 0.4, have no ONNX counterpart; pad the arrays to one shape on the host, and feed them through a placeholder."""
from flow2onnx import dynamic_reshape as dynamic_reshape
def eager_assign_121(ref: _typing.Any, value: _typing.Any) -> _typing.NoReturn:
    """Not available: operators do not run one at a time; use flow.assign in the body of a job."""
from flow2onnx import eager_execution_enabled as eager_execution_enabled
from flow2onnx import eager_fixed_placement as eager_fixed_placement
from flow2onnx import eager_nccl_all_reduce as eager_nccl_all_reduce
from flow2onnx import elem_cnt as elem_cnt
from flow2onnx import empty_initializer as empty_initializer
from flow2onnx import enable_eager_execution as enable_eager_execution
def enable_typing_check(val: _builtins.bool = True) -> None:
    """Demand annotations for the parameters and the result of every job defined from here on."""
from flow2onnx import env as env
from flow2onnx import expand as expand
from flow2onnx import expand_dims as expand_dims
from flow2onnx import find_or_create_module as find_or_create_module
from flow2onnx import fixed_placement as fixed_placement
from flow2onnx import flatten as flatten
from flow2onnx import float as float
from flow2onnx import float16 as float16
from flow2onnx import float32 as float32
from flow2onnx import float64 as float64
from flow2onnx import function as function
from flow2onnx import function_config as function_config
from flow2onnx import gather as gather
from flow2onnx import gather_nd as gather_nd
from flow2onnx import gen_tensor_buffer as gen_tensor_buffer
from flow2onnx import get_all_variables as get_all_variables
def get_interface_blob_value(op_name: _builtins.str) -> _numpy.ndarray[_typing.Any, _numpy.dtype[_typing.Any]]:
    """The present value of a variable."""
def get_job_set() -> _typing.NoReturn:
    """Not available: a job is traced once, so there are no modules that live between its operators; call the operator of flow, such as flow.nn.relu, in the body of the job."""
from flow2onnx import get_variable as get_variable
from flow2onnx import global_function as global_function
from flow2onnx import glorot_normal_initializer as glorot_normal_initializer
from flow2onnx import glorot_uniform_initializer as glorot_uniform_initializer
from flow2onnx import hierarchical_parallel_cast as hierarchical_parallel_cast
from flow2onnx import identity as identity
from flow2onnx import identity_n as identity_n
from flow2onnx import image as image
from flow2onnx import image_batch_align as image_batch_align
from flow2onnx import image_decode as image_decode
from flow2onnx import image_flip as image_flip
from flow2onnx import image_normalize as image_normalize
from flow2onnx import image_random_crop as image_random_crop
from flow2onnx import image_resize as image_resize
from flow2onnx import image_target_resize as image_target_resize
from flow2onnx import in_top_k as in_top_k
def indexed_slices_reduce_sum(indices: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], values: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _builtins.list[_flow2onnx_trace_blob.Blob]:
    """The different indices, the sum of the values of each, and how many there are."""
from flow2onnx import int as int
from flow2onnx import int32 as int32
from flow2onnx import int64 as int64
from flow2onnx import int8 as int8
from flow2onnx import inter_job_reuse_mem_strategy as inter_job_reuse_mem_strategy
from flow2onnx import is_deprecated as is_deprecated
from flow2onnx import kaiming_initializer as kaiming_initializer
from flow2onnx import keras as keras
from flow2onnx import layers as layers
from flow2onnx import linalg as linalg
from flow2onnx import load as load
from flow2onnx import load_variables as load_variables
from flow2onnx import local_gather as local_gather
def logical_slice(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], slice_tup_list: _collections_abc.Sequence[_builtins.tuple[_builtins.int | None, _builtins.int | None, _builtins.int | None]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """`slice_v2` with steps forward only."""
def logical_slice_assign(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], slice_tup_list: _collections_abc.Sequence[_builtins.tuple[_builtins.int | None, _builtins.int | None, _builtins.int | None]], name: _builtins.str | None = None) -> None:
    """After this call the slice of variable `x` holds `value`."""
from flow2onnx import losses as losses
from flow2onnx import masked_fill as masked_fill
from flow2onnx import math as math
from flow2onnx import matmul as matmul
from flow2onnx import model as model
from flow2onnx import multi_count_not_finite as multi_count_not_finite
@_typing_extensions.deprecated("use flow.scope.namespace")
def name_scope(name: _builtins.str) -> _collections_abc.Iterator[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
from flow2onnx import nn as nn
from flow2onnx import nonzero as nonzero
from flow2onnx import object_bbox_flip as object_bbox_flip
from flow2onnx import object_bbox_scale as object_bbox_scale
from flow2onnx import object_segmentation_polygon_flip as object_segmentation_polygon_flip
from flow2onnx import object_segmentation_polygon_scale as object_segmentation_polygon_scale
from flow2onnx import object_segmentation_polygon_to_mask as object_segmentation_polygon_to_mask
from flow2onnx import one_hot as one_hot
from flow2onnx import ones as ones
from flow2onnx import ones_initializer as ones_initializer
from flow2onnx import ones_like as ones_like
from flow2onnx import onnx as onnx
def op_lib(op_type_name: _typing.Any, lib_path: _typing.Any = '') -> _typing.NoReturn:
    """Not available: operators compiled for OneFlow cannot run on ONNX Runtime; compose the operator from flow operators inside the job."""
from flow2onnx import optimizer as optimizer
from flow2onnx import pack as pack
from flow2onnx import pad as pad
from flow2onnx import pad_grad as pad_grad
from flow2onnx import parallel_cast as parallel_cast
from flow2onnx import piece_slice as piece_slice
from flow2onnx import placement as placement
from flow2onnx import profiler as profiler
from flow2onnx import quantization as quantization
from flow2onnx import random as random
from flow2onnx import random_normal_initializer as random_normal_initializer
from flow2onnx import random_uniform_initializer as random_uniform_initializer
from flow2onnx import range as range
from flow2onnx import record as record
from flow2onnx import reflection_pad2d as reflection_pad2d
from flow2onnx import regularizers as regularizers
from flow2onnx import repeat as repeat
from flow2onnx import replication_pad2d as replication_pad2d
from flow2onnx import reshape as reshape
from flow2onnx import reshape_like as reshape_like
from flow2onnx import reverse as reverse
from flow2onnx import same_padding as same_padding
from flow2onnx import save as save
from flow2onnx import saved_model as saved_model
from flow2onnx import scatter_nd as scatter_nd
from flow2onnx.experimental import scope as scope
from flow2onnx import serving as serving
def set_interface_blob_value(op_name: _builtins.str, ndarray: _numpy.ndarray[_typing.Any, _numpy.dtype[_typing.Any]]) -> None:
    """Give a variable a value."""
from flow2onnx import sleep_identity as sleep_identity
from flow2onnx import slice as slice
from flow2onnx import slice_update as slice_update
from flow2onnx import slice_v2 as slice_v2
from flow2onnx import smooth_l1_loss as smooth_l1_loss
from flow2onnx import sort as sort
def square_sum(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sum of all squares, shape (1,)."""
from flow2onnx import squeeze as squeeze
def ssp_variable_proxy(var: _typing.Any, buffer_size: _typing.Any = 1, name: _typing.Any = None) -> _typing.NoReturn:
    """Not available: one call is one step: there are no sub-steps inside a run of an ONNX model; make one call of the job for each piece."""
from flow2onnx import stack as stack
from flow2onnx import summary as summary
from flow2onnx import sync_default_session as sync_default_session
from flow2onnx import sync_dynamic_resize as sync_dynamic_resize
from flow2onnx import sysconfig as sysconfig
from flow2onnx import system as system
from flow2onnx import tensor_buffer as tensor_buffer
from flow2onnx import tensor_buffer_to_list_of_tensors as tensor_buffer_to_list_of_tensors
from flow2onnx import tensor_buffer_to_tensor as tensor_buffer_to_tensor
from flow2onnx import tensor_buffer_to_tensor_list as tensor_buffer_to_tensor_list
from flow2onnx import tensor_list_split as tensor_list_split
from flow2onnx import tensor_list_to_tensor_buffer as tensor_list_to_tensor_buffer
from flow2onnx import tensor_scatter_nd_add as tensor_scatter_nd_add
from flow2onnx import tensor_scatter_nd_update as tensor_scatter_nd_update
from flow2onnx import tensor_to_tensor_buffer as tensor_to_tensor_buffer
from flow2onnx import tensorrt as tensorrt
from flow2onnx import train as train
from flow2onnx import transpose as transpose
from flow2onnx import truncated_normal as truncated_normal
from flow2onnx import truncated_normal_initializer as truncated_normal_initializer
from flow2onnx import typing as typing
from flow2onnx import uint8 as uint8
from flow2onnx import unique_str as unique_str
def unique_with_counts(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], out_idx: _flow2onnx_dtypes.DType = ..., name: _builtins.str | None = None) -> _builtins.list[_flow2onnx_trace_blob.Blob]:
    """The different values of a vector, where each element went, how often each is, how many."""
from flow2onnx import unpack as unpack
from flow2onnx import unsorted_batch_segment_sum as unsorted_batch_segment_sum
from flow2onnx import unsorted_segment_sum as unsorted_segment_sum
from flow2onnx import unsorted_segment_sum_like as unsorted_segment_sum_like
from flow2onnx import user_op_builder as user_op_builder
from flow2onnx import user_op_module_builder as user_op_module_builder
from flow2onnx import util as util
from flow2onnx import variance_scaling_initializer as variance_scaling_initializer
from flow2onnx import watch as watch
from flow2onnx import watch_diff as watch_diff
from flow2onnx import watch_scope as watch_scope
from flow2onnx import where as where
from flow2onnx import xavier_normal_initializer as xavier_normal_initializer
from flow2onnx import xavier_uniform_initializer as xavier_uniform_initializer
from flow2onnx import zero_pad2d as zero_pad2d
from flow2onnx import zeros as zeros
from flow2onnx import zeros_initializer as zeros_initializer
from flow2onnx import zeros_like as zeros_like
