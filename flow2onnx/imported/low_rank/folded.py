"""A language model whose weights of few bits are real numbers, computed once."""

import shutil
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from flow2onnx.export.files import link_file
from flow2onnx.imported.low_rank.folder import LanguageModel
from flow2onnx.onnx_io.adapter_slots import products
from flow2onnx.onnx_io.real_weights import write_real_weights

__all__ = ["ScratchFolder", "fold_weights"]

_FILE = "real_weights.data"


class ScratchFolder:
    """A hidden folder inside another, which goes with the object."""

    def __init__(self, beside: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=".flow2onnx-", dir=beside))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def fold_weights(
    model: LanguageModel, by_rows: Collection[str] = ()
) -> tuple[LanguageModel, ScratchFolder]:
    """The model with real numbers in place of weights of few bits, and the folder that it is in.

    The folder is inside the model's, so that bundles can share its files. Weights of the nodes
    called `by_rows` lie row by row.
    """
    place = ScratchFolder(model.folder)
    folder, proto = place.path, model.copy()
    nodes = [p.node for p in products(proto)]
    write_real_weights(proto, str(model.folder), folder / _FILE, nodes, by_rows)
    for tensor in proto.graph.initializer:
        files = [e.value for e in tensor.external_data if e.key == "location"]
        for name in files:
            if not (folder / name).exists():
                link_file(model.folder / name, folder / name)
    return replace(model, path=folder / model.path.name, proto=proto), place
