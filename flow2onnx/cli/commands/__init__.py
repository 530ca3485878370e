"""One file for each command."""

from flow2onnx.cli.commands.data import data
from flow2onnx.cli.commands.doctor import doctor
from flow2onnx.cli.commands.explain import explain
from flow2onnx.cli.commands.export import export
from flow2onnx.cli.commands.flags import flags
from flow2onnx.cli.commands.info import info
from flow2onnx.cli.commands.make_trainable import make_trainable
from flow2onnx.cli.commands.run import run
from flow2onnx.cli.commands.symbols import symbols
from flow2onnx.cli.commands.tune import tune
from flow2onnx.cli.commands.verify import verify

__all__ = [
    "data",
    "doctor",
    "explain",
    "export",
    "flags",
    "info",
    "make_trainable",
    "run",
    "symbols",
    "tune",
    "verify",
]
