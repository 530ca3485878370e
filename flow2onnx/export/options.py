"""What every export may be told; a model and a bundle add options of their own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from flow2onnx_runtime.tuning_file import forms_in

from flow2onnx.compile.opsets import USUAL_OPSET, check_opset
from flow2onnx.engine.session import Session
from flow2onnx.errors import ArgumentError
from flow2onnx.export.metadata import check_metadata
from flow2onnx.export.session_view import SessionView

__all__ = ["ExportOptions", "check_batch", "check_word"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of any export.

    `batch` fixes it at another size than declared. `tuning` is a file of lowerings measured on the
    target, by ``flow2onnx tune --cache FILE`` there, or by ``python -m flow2onnx_runtime.tune`` on
    what ``flow2onnx tune --emit`` wrote.
    """

    advice: ClassVar[str] = ""  # for who asks it of a job of another kind

    opset: int = USUAL_OPSET
    batch: int | None = None
    metadata: Mapping[str, str] | None = None
    verify: bool = True
    tuning: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_metadata(self.metadata)
        check_opset(self.opset)
        check_batch(self.batch)

    def view(self, session: Session, *, for_devices: bool = False) -> SessionView:
        """A started session, compiled by these options."""
        tuned = forms_in(self.tuning) if self.tuning is not None else {}
        return SessionView(session, self.opset, self.batch, for_devices, tuned)


def check_batch(batch: object) -> None:
    """Raise unless `batch` is a size or None."""
    if batch is not None and (type(batch) is not int or batch < 1):
        raise ArgumentError(f"batch is {batch!r}", hint="give a number of at least 1")


def check_word(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise unless an option has one of the values that it knows."""
    if value not in known:
        raise ArgumentError(f"{name} is {value!r}", hint=f"one of {', '.join(known)}")
