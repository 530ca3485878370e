"""Execution providers, a row each: what every other part knows of a provider it reads here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.option_checks import (
    NAME,
    NUMBER,
    SHAPES,
    SWITCH,
    TEXT,
    WORD,
    Check,
    check,
    choice,
    number_between,
    options,
)
from flow2onnx_runtime.spelling import spelling_hint

__all__ = ["CPU", "PROVIDERS", "Provider", "find_provider", "provider_named"]

_SUFFIX = "ExecutionProvider"


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One execution provider of the runtime.

    `name`: the runtime's name for it; `tag`, its beginning in small letters, is what users write,
    or one of `aliases`; `title` stands in sentences. `memory`: where its tensors live, as OrtValues
    name it. `trains`: whether it computes a step whose weights are inputs. `fallbacks`: tags of the
    providers that take the nodes that it leaves, in order.

    `options`: what its options take; None where nothing is known of them, and all pass unchecked.
    `defaults`: options that hold unless others are given; ``{cache}`` in a value stands for a
    folder where it may keep what takes long to make. `half_options`: the options by which it
    computes in a type of half precision. `profile_options`: those that take the least, the best and
    the largest shapes of inputs with free axes, for which it plans ahead. `probe_options`: those
    with which a trial session opens without long preparations. `capture_option`: the one by which
    runs are captured as a graph and replayed. `refused_halves`: per operator, the reductions that
    its kernels list in half precision and refuse when they run. `alike_pads`: operators of which
    its kernels take equal pads on both sides of an axis and no others. `has_kernels`: it has them
    by operator; one that has not compiles parts of graphs. `lists_kernels`: a build with it can be
    asked for its kernels, which else crashes the process. `is_symmetric`: it takes integers only
    with their zero at 0.

    `package`: what to install; with `plugin`, the module of that package that tells where the
    library is, it stands beside the runtime, and otherwise in its place. `other_plugin`: such a
    module of another package, which is used where it is installed. `libraries`: what it opens when
    a session asks for it; `preloads`: modules that have these where no loader looks, each with the
    names of its files in the order of loading; `library_options`: its options that name more,
    parted by semicolons. `is_everywhere`: every build has it. `is_remote`: its nodes call a
    service, and no model runs on it.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    memory: str = "cpu"
    trains: bool = True
    fallbacks: tuple[str, ...] = ("cpu",)
    options: Mapping[str, Check] | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    half_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    profile_options: tuple[str, str, str] | None = None
    probe_options: Mapping[str, str] = field(default_factory=dict)
    capture_option: str | None = None
    refused_halves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alike_pads: tuple[str, ...] = ()
    has_kernels: bool = True
    lists_kernels: bool = True
    is_symmetric: bool = False
    package: str = "an onnxruntime built with it"
    plugin: str | None = None
    other_plugin: str | None = None
    libraries: str = "the libraries it needs"
    preloads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    library_options: tuple[str, ...] = ()
    is_everywhere: bool = False
    is_remote: bool = False

    @property
    def tag(self) -> str:
        """The short name: ``"cuda"`` for ``"CUDAExecutionProvider"``."""
        return self.name.removesuffix(_SUFFIX).lower()

    @property
    def plugin_module(self) -> str | None:
        """The module that tells where its plug-in is, installed or not; None without any."""
        return self.plugin or self.other_plugin

    @property
    def names(self) -> tuple[str, ...]:
        """The runtime's names of this provider and of those that take what it leaves."""
        return (self.name, *(PROVIDERS[tag].name for tag in self.fallbacks))

    @property
    def remedy(self) -> str:
        """The package to install where the runtime lacks it."""
        where = "beside" if self.plugin else "in place of"
        return f"install {self.package} {where} the onnxruntime here"

    def default_options(self, cache: str | PathLike[str]) -> dict[str, str]:
        """The options that hold unless others are given, with `cache` as its folder."""
        return {name: value.format(cache=cache) for name, value in self.defaults.items()}

    def check_option(self, name: str, value: str) -> None:
        """Raise `OptionsError` for an option that it does not have, or not with `value`."""
        if self.options is not None:
            check(f"{self.name} option", name, value, self.options)


_COUNT, _SIZE = number_between(0, 2**31 - 1), number_between(0, 2**64 - 1)

# What the CUDA provider of onnxruntime 1.31.1 parses, and in which range.
_CUDA_OPTIONS = options(
    device_id=number_between(0, 2**15 - 1),
    gpu_mem_limit=_SIZE,
    arena_extend_strategy=choice("kNextPowerOfTwo", "kSameAsRequested"),
    cudnn_conv_algo_search=choice("HEURISTIC", "EXHAUSTIVE", "DEFAULT"),
    cudnn_conv_use_max_workspace=SWITCH,
    cudnn_conv1d_pad_to_nc1d=SWITCH,
    do_copy_in_default_stream=SWITCH,
    enable_cuda_graph=SWITCH,
    enable_cudnn=SWITCH,
    enable_skip_layer_norm_strict_mode=SWITCH,
    fuse_conv_bias=SWITCH,
    prefer_nhwc=SWITCH,
    use_tf32=SWITCH,
    sdpa_kernel=_COUNT,
    use_ep_level_unified_stream=SWITCH,
    user_compute_stream=_SIZE,
    has_user_compute_stream=SWITCH,
    gpu_external_alloc=_SIZE,
    gpu_external_free=_SIZE,
    gpu_external_empty_cache=_SIZE,
    external_data_loader_reading_threads=number_between(0, 64),
    tunable_op_enable=SWITCH,
    tunable_op_tuning_enable=SWITCH,
    tunable_op_max_tuning_duration_ms=_COUNT,
)

# What the TensorRT provider of onnxruntime 1.31.1 parses from Python: switches as words, and none
# of the options has_user_compute_stream, trt_load_user_initializer and those of byte streams, which
# it has in C.
_TENSORRT_OPTIONS = options(
    device_id=_COUNT,
    user_compute_stream=_SIZE,
    trt_auxiliary_streams=number_between(-1, 2**31 - 1),
    trt_bf16_enable=WORD,
    trt_build_heuristics_enable=WORD,
    trt_builder_optimization_level=number_between(0, 5),
    trt_context_memory_sharing_enable=WORD,
    trt_cuda_graph_enable=WORD,
    trt_detailed_build_log=WORD,
    trt_dla_core=_COUNT,
    trt_dla_enable=WORD,
    trt_dump_ep_context_model=WORD,
    trt_dump_subgraphs=WORD,
    trt_engine_cache_enable=WORD,
    trt_engine_cache_path=NAME,
    trt_engine_cache_prefix=NAME,
    trt_engine_decryption_enable=WORD,
    trt_engine_decryption_lib_path=NAME,
    trt_engine_hw_compatible=WORD,
    trt_ep_context_embed_mode=SWITCH,
    trt_ep_context_file_path=NAME,
    trt_extra_plugin_lib_paths=NAME,
    trt_force_sequential_engine_build=WORD,
    trt_force_timing_cache=WORD,
    trt_fp16_enable=WORD,
    trt_int8_calibration_table_name=NAME,
    trt_int8_enable=WORD,
    trt_int8_use_native_calibration_table=WORD,
    trt_layer_norm_fp32_fallback=WORD,
    trt_max_partition_iterations=_COUNT,
    trt_max_workspace_size=_SIZE,
    trt_min_subgraph_size=_COUNT,
    trt_onnx_model_folder_path=NAME,
    trt_op_types_to_exclude=TEXT,
    trt_preview_features=TEXT,
    trt_profile_max_shapes=SHAPES,
    trt_profile_min_shapes=SHAPES,
    trt_profile_opt_shapes=SHAPES,
    trt_sparsity_enable=WORD,
    trt_tactic_sources=NAME,
    trt_timing_cache_enable=WORD,
    trt_timing_cache_path=NAME,
    trt_weight_stripped_engine_enable=WORD,
)

# What the OpenVINO provider of onnxruntime 1.24.1 parses.
_OPENVINO_OPTIONS = options(
    device_type=TEXT,
    device_luid=TEXT,
    cache_dir=TEXT,
    precision=choice("FP32", "FP16", "ACCURACY"),
    load_config=TEXT,
    context=NUMBER,
    num_of_threads=NUMBER,
    num_streams=NUMBER,
    model_priority=choice("LOW", "MEDIUM", "HIGH", "DEFAULT"),
    layout=TEXT,
    reshape_input=TEXT,
    enable_opencl_throttling=WORD,
    enable_qdq_optimizer=WORD,
    enable_causallm=WORD,
    disable_dynamic_shapes=WORD,
)

# What the CoreML provider parses, by its source.
_COREML_OPTIONS = options(
    ModelFormat=choice("MLProgram", "NeuralNetwork"),
    MLComputeUnits=choice("ALL", "CPUOnly", "CPUAndGPU", "CPUAndNeuralEngine"),
    RequireStaticInputShapes=SWITCH,
    EnableOnSubgraphs=SWITCH,
    SpecializationStrategy=choice("Default", "FastPrediction"),
    ProfileComputePlan=SWITCH,
    AllowLowPrecisionAccumulationOnGPU=SWITCH,
    ModelCacheDirectory=TEXT,
)

# What the WebGPU plug-in 0.4 parses, without handles of a program's own device.
_BUFFERS = choice("disabled", "lazyRelease", "simple", "bucket")
_BINDING: Check = (
    "'0' for the device's own, or a whole number from 134217728 on as text",
    lambda text: text == "0" or number_between(2**27, 2**64 - 1)[1](text),
)
_WEBGPU_OPTIONS = options(
    preferredLayout=choice("NCHW", "NHWC"),
    enableGraphCapture=SWITCH,
    enableInt64=SWITCH,
    dawnBackendType=choice("D3D12", "Vulkan"),
    powerPreference=choice("high-performance", "low-power"),
    storageBufferCacheMode=_BUFFERS,
    uniformBufferCacheMode=_BUFFERS,
    queryResolveBufferCacheMode=_BUFFERS,
    defaultBufferCacheMode=_BUFFERS,
    validationMode=choice("disabled", "wgpuOnly", "basic", "full"),
    enableRobustness=SWITCH,
    forceCpuNodeNames=TEXT,
    maxStorageBufferBindingSize=_BINDING,
    maxNumPendingDispatches=number_between(1, 4096),
)

_ROWS = (
    Provider(
        name="CPUExecutionProvider",
        title="the CPU",
        fallbacks=(),
        options=options(),  # it reads none and takes any
        refused_halves={"ScatterElements": ("add", "mul"),
                        "ScatterND": ("add", "mul", "max", "min")},  # measured
        package="onnxruntime",
        is_everywhere=True,
    ),
    Provider(
        name="CUDAExecutionProvider",
        title="CUDA",
        aliases=("gpu",),
        memory="cuda",
        options=_CUDA_OPTIONS,
        capture_option="enable_cuda_graph",
        alike_pads=("ConvTranspose",),  # it leaves such a node to the CPU
        package="onnxruntime-gpu[cuda,cudnn]",
        other_plugin="onnxruntime_ep_cuda",  # of onnxruntime-ep-cuda13, beside an onnxruntime
        libraries="an NVIDIA driver, CUDA and cuDNN 9",
    ),
    Provider(
        name="TensorrtExecutionProvider",
        title="TensorRT",
        memory="cuda",
        trains=False,  # it builds weights into an engine
        fallbacks=("cuda", "cpu"),
        options=_TENSORRT_OPTIONS,
        defaults={  # engines take minutes to build, so they and the timings are kept
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": "{cache}",
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": "{cache}",
        },
        half_options={"float16": {"trt_fp16_enable": "True"},
                      "bfloat16": {"trt_bf16_enable": "True"}},
        profile_options=("trt_profile_min_shapes", "trt_profile_opt_shapes",
                         "trt_profile_max_shapes"),
        probe_options={"trt_op_types_to_exclude": "Identity"},
        has_kernels=False,
        is_symmetric=True,
        package="onnxruntime-gpu[cuda,cudnn] and 'tensorrt-cu13<11'",
        preloads={"tensorrt_libs": ("libnvinfer.so.10", "libnvonnxparser.so.10",
                                    "nvinfer_10.dll", "nvonnxparser_10.dll")},
        libraries="CUDA and libnvinfer.so.10 (pip's 'tensorrt-cu13<11')",
        library_options=("trt_engine_decryption_lib_path", "trt_extra_plugin_lib_paths"),
    ),
    Provider(
        name="DmlExecutionProvider",
        title="DirectML",
        aliases=("directml",),
        package="onnxruntime-directml",
        libraries="DirectX 12",
    ),
    Provider(
        name="OpenVINOExecutionProvider",
        title="OpenVINO",
        options=_OPENVINO_OPTIONS,
        lists_kernels=False,  # seen with 1.24.1
        package="onnxruntime-openvino",
        libraries="OpenVINO",
        has_kernels=False,
    ),
    Provider(
        name="QNNExecutionProvider",
        title="QNN",
        trains=False,
        package="onnxruntime-qnn",
        libraries="the Qualcomm AI runtime",
        library_options=("backend_path",),
        has_kernels=False,
    ),
    Provider(
        name="CoreMLExecutionProvider",
        title="CoreML",
        options=_COREML_OPTIONS,
        trains=False,
        package="onnxruntime on macOS",
        libraries="CoreML",
        has_kernels=False,
    ),
    Provider(
        name="XnnpackExecutionProvider",
        title="XNNPACK",
        options=options(intra_op_num_threads=NUMBER),
    ),
    Provider(
        name="WebGpuExecutionProvider",
        title="WebGPU",
        options=_WEBGPU_OPTIONS,
        package="onnxruntime-ep-webgpu",
        plugin="onnxruntime_ep_webgpu",
        libraries="a GPU that Vulkan, Direct3D 12 or Metal reaches",
    ),
    Provider(
        name="AzureExecutionProvider",
        title="Azure",
        package="onnxruntime",
        is_everywhere=True,
        is_remote=True,
    ),
)  # fmt: skip
PROVIDERS: Mapping[str, Provider] = MappingProxyType({row.tag: row for row in _ROWS})
CPU = PROVIDERS["cpu"]

_BY_NAME = {row.name: row for row in _ROWS}
_BY_WORD = {word: row for row in _ROWS for word in (row.tag, *row.aliases)}


def provider_named(name: str) -> Provider:
    """The row of a provider by the runtime's name; a bare one where the table has none."""
    return _BY_NAME.get(name) or Provider(name=name, title=name)


def find_provider(word: str, others: Iterable[str] = ()) -> Provider:
    """The row of a provider by its tag, an alias or the runtime's name.

    `others` are names of providers that the runtime lists, whether the table has them or not.
    Raises `OptionsError`, with the close words, for anything else.
    """
    listed = [provider_named(name) for name in others]
    rows = {row.name: row for row in (*_ROWS, *listed)}
    words = _BY_WORD | {row.tag: row for row in listed if row.name not in _BY_NAME}
    found = rows.get(word) or words.get(word.lower())
    if found is None:
        raise OptionsError(
            f"there is no provider {word!r}",
            hint=spelling_hint(word, words, f"providers are {', '.join(words)}", most=1),
        )
    return found
