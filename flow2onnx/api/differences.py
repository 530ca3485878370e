"""Symbols that do something else than in OneFlow, and what: one row for each."""

from types import MappingProxyType

__all__ = ["DIFFERENCES"]

_ONE_DEVICE = (
    "there is one device: values are not changed, and arguments are not checked against it"
)
_NO_EFFECT = "accepted, and changes nothing"
_SETTINGS = "settings without a meaning here say so once; `flow2onnx flags` lists them"
_BIASED = "the moving variance follows the biased one on GPUs too, as it does on CPUs"
_RANDOM = "other random numbers, from ONNX Runtime's generators"

DIFFERENCES = MappingProxyType({
    "ExecutionConfig": _SETTINGS,
    "FunctionConfig": _SETTINGS,
    "advanced.distribute_add": "takes one blob, for the one device",
    "advanced.distribute_clone": "gives one blob, for the one device",
    "advanced.distribute_concat": "takes one blob, for the one device",
    "advanced.distribute_map": "calls the function once, for the one device",
    "advanced.distribute_split": "gives one blob, for the one device",
    "config": _SETTINGS,
    "current_machine_id": "0",
    "current_resource": "a dictionary of the settings of flow.config",
    "data.load_mnist": "downloads only from a `url` that is given; `path` names a file",
    "distributed.get_rank": "0: there is one process",
    "distributed.get_world_size": "1: there is one process",
    "eager_execution_enabled": "never",
    "empty_initializer": "every element is 0, where OneFlow leaves memory as it is",
    "enable_eager_execution": "accepted with a note; jobs are traced once all the same",
    "env": _SETTINGS,
    "experimental.scope.config": _NO_EFFECT,
    "function_config": _SETTINGS,
    "get_variable": "first values are decided by the name and `flow.config.random_seed`",
    "global_function": "a second job of the same name warns; annotations as text are resolved",
    "hierarchical_parallel_cast": _ONE_DEVICE,
    "inter_job_reuse_mem_strategy": "accepted with a note, and changes nothing",
    "layers.batch_normalization": _BIASED,
    "layers.batch_normalization_add_relu": _BIASED,
    "layers.batch_normalization_relu": _BIASED,
    "nn.dropout": _RANDOM,
    "nn.fused_bias_add_dropout": _RANDOM,
    "nn.random_mask_like": _RANDOM,
    "optimizer.LAMB": "bias correction uses the current step, as fixed in 0.8",
    "optimizer.grad_clipping.by_global_norm":
        "gradients are multiplied by min(1, c/(norm + 1e-6)), as fixed in 0.8",
    "parallel_cast": _ONE_DEVICE,
    "profiler.nvtx_end": "the identity: no mark is set",
    "profiler.nvtx_start": "the identity: no mark is set",
    "profiler.range_pop": _NO_EFFECT,
    "profiler.range_push": _NO_EFFECT,
    "scope.placement": "jobs run on one device, the GPU if anything is placed there",
    "sysconfig.get_compile_flags": "none: there is nothing to compile against",
    "sysconfig.get_cuda_version": "empty: nothing was compiled for CUDA",
    "sysconfig.get_link_flags": "none: there is nothing to link to",
    "sysconfig.with_cuda": "whether ONNX Runtime can use a GPU here",
    "train.CheckPoint": "`init` does nothing: variables get their first values at the first call",
    "user_op_builder": "for the operator types of flow2onnx/api/op_types.py, with one output",
})  # fmt: skip
