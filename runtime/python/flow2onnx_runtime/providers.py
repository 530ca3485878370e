"""Execution providers, a row each: what every other part knows of a provider it reads here."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.option_checks import (
    INTEGER,
    NUMBER,
    SWITCH,
    TEXT,
    Check,
    check,
    choice,
    options,
)

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
    folder where it may keep what takes long to make. `half_options`: the option by which it
    computes in a type of half precision. `capture_option`: the one by which runs are captured as a
    graph and replayed. `refused_halves`: per operator, the reductions that its kernels list in half
    precision and refuse when they run. `alike_pads`: operators of which its kernels take equal pads
    on both sides of an axis and no others. `has_kernels`: it has them by operator; one that has not
    compiles parts of graphs. `lists_kernels`: a build with it can be asked for its kernels, which
    else crashes the process. `is_symmetric`: it takes integers only with their zero at 0.

    `package`: what to install; with `plugin`, the module of that package that tells where the
    library is, it stands beside the runtime, and otherwise in its place. `libraries`: what it opens
    when a session asks for it; `library_options`: its options that name more, parted by semicolons.
    `is_everywhere`: every build has it. `is_remote`: its nodes call a service, and no model runs on
    it.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    memory: str = "cpu"
    trains: bool = True
    fallbacks: tuple[str, ...] = ("cpu",)
    options: Mapping[str, Check] | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    half_options: Mapping[str, str] = field(default_factory=dict)
    capture_option: str | None = None
    refused_halves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alike_pads: tuple[str, ...] = ()
    has_kernels: bool = True
    lists_kernels: bool = True
    is_symmetric: bool = False
    package: str = "an onnxruntime built with it"
    plugin: str | None = None
    libraries: str = "the libraries it needs"
    library_options: tuple[str, ...] = ()
    is_everywhere: bool = False
    is_remote: bool = False

    @property
    def tag(self) -> str:
        """The short name: ``"cuda"`` for ``"CUDAExecutionProvider"``."""
        return self.name.removesuffix(_SUFFIX).lower()

    @property
    def names(self) -> tuple[str, ...]:
        """The runtime's names of this provider and of those that take what it leaves."""
        return (self.name, *(PROVIDERS[tag].name for tag in self.fallbacks))

    @property
    def remedy(self) -> str:
        """The package to install where the runtime lacks it."""
        where = "beside" if self.plugin else "in place of"
        return f"install {self.package} {where} the onnxruntime here"

    def check_option(self, name: str, value: str) -> None:
        """Raise `OptionsError` for an option that it does not have, or not with `value`."""
        if self.options is not None:
            check(f"{self.name} option", name, value, self.options)


# What the CUDA provider of onnxruntime 1.31.1 parses.
_CUDA_OPTIONS = options(
    device_id=NUMBER,
    gpu_mem_limit=NUMBER,
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
    sdpa_kernel=NUMBER,
    use_ep_level_unified_stream=SWITCH,
    user_compute_stream=NUMBER,
    has_user_compute_stream=SWITCH,
    gpu_external_alloc=NUMBER,
    gpu_external_free=NUMBER,
    gpu_external_empty_cache=NUMBER,
    external_data_loader_reading_threads=NUMBER,
    tunable_op_enable=SWITCH,
    tunable_op_tuning_enable=SWITCH,
    tunable_op_max_tuning_duration_ms=NUMBER,
)

# What the TensorRT provider of onnxruntime 1.31.1 parses.
_TENSORRT_OPTIONS = options(
    device_id=NUMBER,
    user_compute_stream=NUMBER,
    has_user_compute_stream=SWITCH,
    trt_auxiliary_streams=INTEGER,
    trt_bf16_enable=SWITCH,
    trt_build_heuristics_enable=SWITCH,
    trt_builder_optimization_level=NUMBER,
    trt_context_memory_sharing_enable=SWITCH,
    trt_cuda_graph_enable=SWITCH,
    trt_detailed_build_log=SWITCH,
    trt_dla_core=NUMBER,
    trt_dla_enable=SWITCH,
    trt_dump_ep_context_model=SWITCH,
    trt_dump_subgraphs=SWITCH,
    trt_engine_cache_enable=SWITCH,
    trt_engine_cache_path=TEXT,
    trt_engine_cache_prefix=TEXT,
    trt_engine_decryption_enable=SWITCH,
    trt_engine_decryption_lib_path=TEXT,
    trt_engine_hw_compatible=SWITCH,
    trt_ep_context_embed_mode=NUMBER,
    trt_ep_context_file_path=TEXT,
    trt_extra_plugin_lib_paths=TEXT,
    trt_force_sequential_engine_build=SWITCH,
    trt_force_timing_cache=SWITCH,
    trt_fp16_enable=SWITCH,
    trt_int8_calibration_table_name=TEXT,
    trt_int8_enable=SWITCH,
    trt_int8_use_native_calibration_table=SWITCH,
    trt_layer_norm_fp32_fallback=SWITCH,
    trt_load_user_initializer=SWITCH,
    trt_max_partition_iterations=NUMBER,
    trt_max_workspace_size=NUMBER,
    trt_min_subgraph_size=NUMBER,
    trt_onnx_model_folder_path=TEXT,
    trt_op_types_to_exclude=TEXT,
    trt_preview_features=TEXT,
    trt_profile_max_shapes=TEXT,
    trt_profile_min_shapes=TEXT,
    trt_profile_opt_shapes=TEXT,
    trt_sparsity_enable=SWITCH,
    trt_tactic_sources=TEXT,
    trt_timing_cache_enable=SWITCH,
    trt_timing_cache_path=TEXT,
    trt_weight_stripped_engine_enable=SWITCH,
)

# What the OpenVINO provider of onnxruntime 1.24.1 parses.
_TRUTH = choice("true", "True", "false", "False")
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
    enable_opencl_throttling=_TRUTH,
    enable_qdq_optimizer=_TRUTH,
    enable_causallm=_TRUTH,
    disable_dynamic_shapes=_TRUTH,
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
    maxStorageBufferBindingSize=NUMBER,
    maxNumPendingDispatches=NUMBER,
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
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": "{cache}",
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": "{cache}",
        },
        half_options={"float16": "trt_fp16_enable", "bfloat16": "trt_bf16_enable"},
        has_kernels=False,
        is_symmetric=True,
        package="onnxruntime-gpu[cuda,cudnn]",
        libraries="CUDA and libnvinfer.so.10",
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
        close = difflib.get_close_matches(word.lower(), words, n=1)
        raise OptionsError(
            f"there is no provider {word!r}",
            hint=f"did you mean {close[0]!r}?" if close else f"providers are {', '.join(words)}",
        )
    return found
