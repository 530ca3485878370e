"""Train and predict with flow2onnx bundles on a stock ONNX Runtime: numpy and onnxruntime only."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx_runtime.assignment import AssignedNode, assigned_nodes
    from flow2onnx_runtime.batching import Batched
    from flow2onnx_runtime.callbacks import (
        BestCheckpoint,
        Callback,
        CSVLog,
        EarlyStopping,
        Plot,
        ReduceOnPlateau,
    )
    from flow2onnx_runtime.distributed_trainer import DistributedTrainer
    from flow2onnx_runtime.errors import (
        BundleError,
        DeadlineError,
        DeviceError,
        FeedError,
        FlowError,
        NonFiniteError,
        OptionsError,
        OutOfMemoryError,
        ProviderError,
        RunError,
        StateError,
    )
    from flow2onnx_runtime.event_files import TensorBoardLog
    from flow2onnx_runtime.files import replace_file, replace_folder
    from flow2onnx_runtime.fitting import FitSettings, fit
    from flow2onnx_runtime.history import History
    from flow2onnx_runtime.learner import Learner, fill_rows
    from flow2onnx_runtime.loop import Loop
    from flow2onnx_runtime.manifest import (
        Accumulation,
        FileEntry,
        Manifest,
        PredictJob,
        StateSpec,
        TensorSpec,
    )
    from flow2onnx_runtime.metrics import (
        F1,
        MAE,
        METRICS,
        MSE,
        R2,
        RMSE,
        Accuracy,
        Metric,
        Perplexity,
        TopK,
    )
    from flow2onnx_runtime.options import Options, open_session, require_providers
    from flow2onnx_runtime.predictor import Predictor
    from flow2onnx_runtime.program import Program, TensorInfo
    from flow2onnx_runtime.provider_checks import usable_providers, why_unusable
    from flow2onnx_runtime.registry import KernelTable, kernels
    from flow2onnx_runtime.safetensors import load_safetensors, save_safetensors
    from flow2onnx_runtime.state import State
    from flow2onnx_runtime.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "F1",
    "MAE",
    "METRICS",
    "MSE",
    "R2",
    "RMSE",
    "Accumulation",
    "Accuracy",
    "AssignedNode",
    "Batched",
    "BestCheckpoint",
    "BundleError",
    "CSVLog",
    "Callback",
    "DeadlineError",
    "DeviceError",
    "DistributedTrainer",
    "EarlyStopping",
    "FeedError",
    "FileEntry",
    "FitSettings",
    "FlowError",
    "History",
    "KernelTable",
    "Learner",
    "Loop",
    "Manifest",
    "Metric",
    "NonFiniteError",
    "Options",
    "OptionsError",
    "OutOfMemoryError",
    "Perplexity",
    "Plot",
    "PredictJob",
    "Predictor",
    "Program",
    "ProviderError",
    "ReduceOnPlateau",
    "RunError",
    "State",
    "StateError",
    "StateSpec",
    "TensorBoardLog",
    "TensorInfo",
    "TensorSpec",
    "TopK",
    "Trainer",
    "assigned_nodes",
    "fill_rows",
    "fit",
    "kernels",
    "load_safetensors",
    "open_session",
    "replace_file",
    "replace_folder",
    "require_providers",
    "save_safetensors",
    "usable_providers",
    "why_unusable",
]

# Loaded on first use, so that the errors can be imported without onnxruntime and numpy.
_HOMES = {
    "assignment": ("AssignedNode", "assigned_nodes"),
    "batching": ("Batched",),
    "callbacks": (
        "BestCheckpoint",
        "CSVLog",
        "Callback",
        "EarlyStopping",
        "Plot",
        "ReduceOnPlateau",
    ),
    "distributed_trainer": ("DistributedTrainer",),
    "errors": (
        "BundleError",
        "DeadlineError",
        "DeviceError",
        "FeedError",
        "FlowError",
        "NonFiniteError",
        "OptionsError",
        "OutOfMemoryError",
        "ProviderError",
        "RunError",
        "StateError",
    ),
    "event_files": ("TensorBoardLog",),
    "files": ("replace_file", "replace_folder"),
    "fitting": ("FitSettings", "fit"),
    "history": ("History",),
    "learner": ("Learner", "fill_rows"),
    "loop": ("Loop",),
    "manifest": (
        "Accumulation",
        "FileEntry",
        "Manifest",
        "PredictJob",
        "StateSpec",
        "TensorSpec",
    ),
    "metrics": (
        "F1",
        "MAE",
        "METRICS",
        "MSE",
        "R2",
        "RMSE",
        "Accuracy",
        "Metric",
        "Perplexity",
        "TopK",
    ),
    "options": ("Options", "open_session", "require_providers"),
    "predictor": ("Predictor",),
    "program": ("Program", "TensorInfo"),
    "provider_checks": ("usable_providers", "why_unusable"),
    "registry": ("KernelTable", "kernels"),
    "state": ("State",),
    "safetensors": ("load_safetensors", "save_safetensors"),
    "trainer": ("Trainer",),
}
if not TYPE_CHECKING:
    __getattr__ = import_on_demand(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
