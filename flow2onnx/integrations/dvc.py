"""DVC: the files that `dvc metrics` and `dvc plots` read, laid out as DVCLive lays them out."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flow2onnx_runtime import Callback, OptionsError
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.world import launched_world

from flow2onnx.integrations.models import numbers

if TYPE_CHECKING:
    from flow2onnx_runtime import Loop

__all__ = ["DVCLog"]


class DVCLog(Callback):
    """Write ``metrics.json`` and ``plots/metrics/NAME.tsv`` below a folder after each epoch.

    A ``dvc.yaml`` in it names both, so that DVC finds them wherever the folder is. ``val_loss`` is
    ``val/loss`` there, and ``loss`` is ``train/loss``. Every file is whole at any time, and written
    anew of the history, so that a resumed training has its first epochs too. Nothing needs to be
    installed.
    """

    def __init__(self, folder: str | os.PathLike[str] = "dvclive") -> None:
        self._folder = Path(folder)

    def on_fit_begin(self, loop: "Loop") -> None:
        """See that the folder can be made."""
        if self._folder.exists() and not self._folder.is_dir():
            raise OptionsError(f"{self._folder} is no folder", hint="give another to DVCLog")

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Write all files; of several processes the first does."""
        if launched_world().rank != 0:
            return
        rows = list(loop.history)
        names = {name: None for each in rows for name in numbers(each)}
        for name in names:
            lines = [f"{int(r['step'])}\t{r[name]:.17g}" for r in rows if name in r]
            text = "\n".join((f"step\t{_path(name).rpartition('/')[2]}", *lines, ""))
            self._write(f"plots/metrics/{_path(name)}.tsv", text)
        nested: dict[str, object] = {"step": int(row["step"])}
        for name, value in numbers(row).items():
            side, _, last = _path(name).rpartition("/")
            place = nested.setdefault(side, {}) if side else nested
            assert isinstance(place, dict), f"{side} is a metric and a folder of them"
            place[last] = value
        self._write("metrics.json", json.dumps(nested, indent=4) + "\n")
        self._write("dvc.yaml", _DVC)

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, text.encode())


_DVC = """params: []
metrics:
- metrics.json
plots:
- plots/metrics:
    x: step
"""


def _path(name: str) -> str:
    """A metric as DVCLive has it: ``val_loss`` is ``val/loss``, ``loss`` is ``train/loss``.

    A loss is named by the bundle, which somebody else may have made: what is in no plain file name
    becomes an underscore.
    """
    plain = re.sub(r"[^\w.-]|^\.+", "_", name.removeprefix("val_"))
    if name in ("lr", "seconds"):
        return plain
    return f"val/{plain}" if name.startswith("val_") else f"train/{plain}"
