"""A language model on disk: the folder that onnxruntime-genai serves, or one model file."""

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import open_file
from flow2onnx_runtime.json_reader import parse_object

from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.onnx_io.adapter_slots import is_built
from flow2onnx.onnx_io.read import open_model

__all__ = ["CONFIG", "LanguageModel", "open_language_model"]

CONFIG = "genai_config.json"
_FAMILIES = (
    "gemma", "gemma2", "gemma3_text", "gptoss", "granite", "llama", "mistral", "phi", "phi3",
    "qwen2", "qwen3", "smollm", "smollm3",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A model file, its content without large tensors, and what the folder around it says.

    `family` is the architecture, empty where no folder says one; `logits` the name of that output.
    """

    path: Path
    proto: Any  # onnx.ModelProto
    config: dict[str, Any]
    family: str
    logits: str

    @property
    def folder(self) -> Path:
        """The folder of the model and of its tensors."""
        return self.path.parent

    @property
    def has_folder(self) -> bool:
        """True if the folder says how the model is served."""
        return bool(self.config)

    @property
    def is_built(self) -> bool:
        """True if onnxruntime-genai's builder named the modules, in a folder or a file alone."""
        return self.has_folder or is_built(self.proto)

    @property
    def named_by(self) -> str | None:
        """The family by which modules are named, as `write_adapter` takes it."""
        return self.family if self.is_built else None

    @property
    def head_size(self) -> int | None:
        """The size of keys and values of a head, where the folder says it."""
        decoder = self.config.get("model", {}).get("decoder", {})
        found = decoder.get("head_size")
        return found if isinstance(found, int) and found > 0 else None

    @property
    def context(self) -> int | None:
        """The most tokens of a text, where the folder says it or rotations are stored in a table.

        Raises BundleError for a context_length that is no number of at least 1.
        """
        bounds = [self._said_context, *map(_rotations, self.proto.graph.initializer)]
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def _said_context(self) -> int | None:
        said = self.config.get("model", {}).get("context_length")
        if said is None:
            return None
        if isinstance(said, bool) or not isinstance(said, int) or said < 1:
            raise BundleError(
                f"{self.folder / CONFIG}: context_length is {said!r}, which is no number of tokens",
                hint="copy the folder again",
            )
        return said

    @property
    def words(self) -> int | None:
        """The number of tokens that the model has scores for; None where its type does not say."""
        for output in self.proto.graph.output:
            dims = output.type.tensor_type.shape.dim
            if output.name == self.logits and dims:
                return int(dims[-1].dim_value) or None
        return None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files in which tensors lie."""
        entries = (e for t in self.proto.graph.initializer for e in t.external_data)
        return tuple(sorted({str(e.value) for e in entries if e.key == "location"}))

    def copy(self) -> Any:
        """The content of the model, to be changed."""
        return copy.deepcopy(self.proto)


def open_language_model(path: str | os.PathLike[str], logits: str | None = None) -> LanguageModel:
    """Read a folder of onnxruntime-genai, or one .onnx file.

    `logits` names the output that predicts tokens; without, it is the one that the folder says, or
    the model's first. Raises UnsupportedError for a folder of an architecture that is not known.
    """
    given = Path(path)
    config: dict[str, Any] = {}
    file = given
    if given.is_dir():
        config = _read_config(given)
        file = given / str(_decoder(config, given).get("filename", "model.onnx"))
        if file.parent != given:
            raise BundleError(f"{given / CONFIG}: filename is {file}, which is no name of a file")
    proto = open_model(file).proto
    said = _outputs(config, given).get("logits") if config else None
    family = str(config.get("model", {}).get("type", "")) if config else ""
    if config and family not in _FAMILIES:
        raise UnsupportedError(
            f"{given}: models of type {family!r} are not known",
            hint=f"known are {', '.join(_FAMILIES)}; give the .onnx file itself to try",
        )
    return LanguageModel(
        path=file,
        proto=proto,
        config=config,
        family=family,
        logits=logits or said or proto.graph.output[0].name,
    )


def _rotations(tensor: Any) -> int | None:
    """How many tokens a table has rotations for, if it is one that the builder writes."""
    return int(tensor.dims[0]) if tensor.name == "cos_cache" else None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    with open_file(path, f"a folder of onnxruntime-genai has {CONFIG}; or give an .onnx file") as f:
        return parse_object(f.read(), str(path))


def _decoder(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    model = config.get("model", {})
    decoder = model.get("decoder", {}) if isinstance(model, dict) else None
    if not isinstance(decoder, dict):
        raise BundleError(
            f"{folder / CONFIG}: it says nothing of a decoder", hint="copy the folder again"
        )
    return decoder


def _outputs(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    outputs = _decoder(config, folder).get("outputs", {})
    if not isinstance(outputs, dict) or not isinstance(outputs.get("logits", ""), str):
        raise BundleError(
            f"{folder / CONFIG}: it names no outputs of the decoder", hint="copy the folder again"
        )
    return outputs
