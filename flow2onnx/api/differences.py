"""Symbols that do something else than in OneFlow, and what: one row for each."""

from types import MappingProxyType

__all__ = ["DIFFERENCES"]

_HINT = "changes no value; of several processes it says what each holds of the blob"
_NO_EFFECT = "accepted, and changes nothing"
_SETTINGS = "settings without a meaning here say so once; `flow2onnx flags` lists them"
_BIASED = "the moving variance follows the biased one on GPUs too, as it does on CPUs"
_GOOGLE = "the formula 'google' alone; affine ranges are widened to contain 0"
_RANDOM = "other random numbers, from ONNX Runtime's generators"

_ALIGNED = "zeros fill the declared shape, not only up to the largest image of the batch"
_ORDER = "other random numbers; the session's seed and the operator's name decide them"
_BLOB_CONF = "the shape is (height, width, channels), also where it is not square"

_UNROLLED = "sub-steps are unrolled in the graph of one call"
_MORE = "has a gradient for shapes that broadcast too, which OneFlow lacks"
_TABLE = (
    "entries stand in order of appearance, not of their hash; each key is compared with each entry"
)

DIFFERENCES = MappingProxyType({
    "ExecutionConfig": _SETTINGS,
    "FunctionConfig": _SETTINGS,
    "acc": _UNROLLED,
    "advanced.distribute_add": "takes one blob, for the one device",
    "advanced.distribute_clone": "gives one blob, for the one device",
    "advanced.distribute_concat": "takes one blob, for the one device",
    "advanced.distribute_map": "calls the function once, for the one device",
    "advanced.distribute_split": "gives one blob, for the one device",
    "cast_to_static_shape": "what a run does not fill up to the bound is 0",
    "categorical_ordinal_encode": _TABLE,
    "config": _SETTINGS,
    "current_resource": "a dictionary of the settings of flow.config",
    "data.BlobConf": _BLOB_CONF,
    "data.OFRecordImageDecoderRandomCrop": _ORDER,
    "data.coco_reader": _ORDER,
    "data.image_decoder_random_crop_resize": _ORDER,
    "data.ofrecord_image_decoder_random_crop": _ORDER,
    "data.ofrecord_reader": _ORDER,
    "data.load_mnist": "downloads only from a `url` that is given; `path` names a file",
    "distributed_partial_fc_sample": "the sample is of all classes, on the one device; " + _RANDOM,
    "eager_execution_enabled": "never",
    "empty_initializer": "every element is 0, where OneFlow leaves memory as it is",
    "enable_eager_execution":
        "jobs are traced once all the same; one decorated anew at each call stays one job",
    "env": _SETTINGS,
    "experimental.scope.config": _NO_EFFECT,
    "experimental.unique_with_counts": "what pads the values and the counts is 0",
    "function_config": _SETTINGS,
    "get_variable": "first values are decided by the name and `flow.config.random_seed`",
    "global_function": "a second job of the same name warns; annotations as text are resolved",
    "hierarchical_parallel_cast": _HINT,
    "image.batch_align": _ALIGNED,
    "image.random_crop": _ORDER,
    "image_batch_align": _ALIGNED,
    "image_random_crop": _ORDER,
    "inter_job_reuse_mem_strategy": "accepted with a note, and changes nothing",
    "layers.batch_normalization": _BIASED,
    "layers.batch_normalization_add_relu": _BIASED,
    "layers.batch_normalization_relu": _BIASED,
    "layers.categorical_ordinal_encoder": _TABLE,
    "nn.dropout": _RANDOM,
    "nn.fused_bias_add_dropout": _RANDOM,
    "math.maximum": _MORE,
    "math.minimum": _MORE,
    "math.reduce_prod": "has a gradient, which OneFlow lacks",
    "math.expm1": "not a number at minus infinity, where it should be -1",
    "nn.random_mask_like": _RANDOM,
    "onnx.export": "opset 18 at least; no `shape_override`, no `extra_opset`",
    "optimizer.LAMB": "bias correction uses the current step, as fixed in 0.8",
    "optimizer.grad_clipping.by_global_norm":
        "gradients are multiplied by min(1, c/(norm + 1e-6)), as fixed in 0.8",
    "pack": _UNROLLED,
    "parallel_cast": _HINT,
    "profiler.nvtx_end": "the identity: no mark is set",
    "profiler.nvtx_start": "the identity: no mark is set",
    "profiler.range_pop": _NO_EFFECT,
    "profiler.range_push": _NO_EFFECT,
    "quantization.fake_quantization": _GOOGLE,
    "quantization.min_max_observer": _GOOGLE,
    "quantization.moving_average_min_maxObserver": _GOOGLE,
    "quantization.moving_average_min_max_observer": _GOOGLE,
    "random.CoinFlip": _RANDOM,
    "random.bernoulli": _RANDOM,
    "random.coin_flip": _RANDOM,
    "random.generate_random_batch_permutation_indices": _RANDOM,
    "random.shuffle": _RANDOM,
    "repeat": _UNROLLED,
    "saved_model.ModelBuilder": "each job is an ONNX file beside OneFlow's files",
    "scope.mirrored_view": "one process does the work of all devices, or `flow2onnx launch` starts "
    "one for each; the pieces of a list have one shape",
    "scope.placement": "one process runs all on one device, the GPU if anything is placed there; "
    "of several each plays its own",
    "serving.InferenceSession": "opens what `saved_model` wrote here, with the weights of any run",
    "sort": "has a gradient, which OneFlow lacks",
    "sleep_identity": "the identity at once: a model cannot sleep",
    "summary.Graph": "the nodes of the ONNX models, in place of OneFlow's plan",
    "summary.create_summary_writer": "the file has the name that TensorBoard looks for",
    "sysconfig.get_compile_flags": "none: there is nothing to compile against",
    "sysconfig.get_cuda_version": "empty: nothing was compiled for CUDA",
    "sysconfig.get_link_flags": "none: there is nothing to link to",
    "sysconfig.with_cuda": "whether ONNX Runtime can use a GPU here",
    "train.CheckPoint": "`init` does nothing: variables get their first values at the first call",
    "unpack": _UNROLLED,
    "user_op_builder": "for the operator types of flow2onnx/api/op_types.py",
})  # fmt: skip
