"""Which tensors are one parameter, and under which names: what exporters say of it.

Exporters merge tensors of equal content, such as the zeros that all offsets begin with; trained as
one they would stay equal, while a layer that is used twice has one weight. torch's exporters tell
them apart: the newer by the scope of each node and the list of all parameters, the older by an
Identity that bears the name of what was merged.
"""

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Node
from flow2onnx.onnx_io.append import value_like
from flow2onnx.onnx_io.foreign import ForeignModel, tensor_content
from flow2onnx.onnx_io.torch_scopes import SCOPES, read_scopes
from flow2onnx.trace.call_text import known_names

__all__ = ["TensorNames", "element_type", "is_named_by_torch", "name_tensors"]

# They take a scale and an offset also where a layer has neither.
_NORMALISING = ("BatchNormalization", "InstanceNormalization", "LayerNormalization")
# The last part of a parameter's name by the place where torch's older exporter puts its content.
_PARTS = {
    ("Conv", 1): "weight", ("Conv", 2): "bias", ("ConvTranspose", 1): "weight",
    ("ConvTranspose", 2): "bias", ("GRU", 1): "weight_ih", ("GRU", 2): "weight_hh",
    ("GRU", 3): "bias", ("Gemm", 1): "weight", ("Gemm", 2): "bias", ("LSTM", 1): "weight_ih",
    ("LSTM", 2): "weight_hh", ("LSTM", 3): "bias", ("MatMul", 1): "weight",
    ("RNN", 1): "weight_ih", ("RNN", 2): "weight_hh", ("RNN", 3): "bias",
}  # fmt: skip


@dataclass(frozen=True)
class TensorNames:
    """The names of a model's tensors, and what their exporter takes them for.

    `aliases` are further names of a tensor; `separated` those that stood for several parameters,
    with the names of these; `constants` those that the exporter made itself; `shared` those of
    equal numbers that several nodes read, with their count, where no exporter says that it is one.
    """

    aliases: Mapping[str, tuple[str, ...]]
    separated: Mapping[str, tuple[str, ...]]
    constants: frozenset[str]
    shared: Mapping[str, int]

    def of(self, name: str) -> tuple[str, ...]:
        """All names of a tensor."""
        return (name, *self.aliases.get(name, ()))


def name_tensors(
    foreign: ForeignModel, separate: Sequence[str] | None
) -> tuple[ForeignModel, TensorNames]:
    """The model with a tensor for each of its parameters, and what they are called.

    `separate` are patterns of tensors whose uses are trained apart, each its own; None leaves that
    to what the exporter says.
    """
    work = _Naming(foreign)
    if separate is None:
        work.follow_identities()
        work.follow_scopes()
    else:
        work.separate(separate)
    work.restore_transposes()
    work.name_by_place()
    return work.model(), work.names()


class _Naming:
    """The tensors of a model on the way to one for each parameter."""

    def __init__(self, foreign: ForeignModel) -> None:
        self.foreign = foreign
        self.tensors, self.kinds = dict(foreign.tensors), dict(foreign.kinds)
        self.values = {
            str(v.name): v
            for v in (*foreign.graph.inputs, *foreign.graph.initializers.values())
            if v.name in self.tensors
        }
        self.aliases: dict[str, list[str]] = {}
        self.separated: dict[str, list[str]] = {}

    def model(self) -> ForeignModel:
        return replace(self.foreign, tensors=self.tensors, kinds=self.kinds)

    def names(self) -> TensorNames:
        return TensorNames(
            {name: tuple(dict.fromkeys(found)) for name, found in self.aliases.items()},
            {name: tuple(found) for name, found in self.separated.items()},
            frozenset(n for n in self.tensors if self._is_constant(n)),
            {n: len(v.uses()) for n, v in self.values.items() if self._is_shared(n)},
        )

    def follow_identities(self) -> None:
        """An Identity of a tensor bears another name of it, or that of one merged into it."""
        for node in [n for n in self.foreign.graph if n.op_type == "Identity" and not n.domain]:
            (x,), (y,) = node.inputs, node.outputs
            name = str(x.name) if x is not None else ""
            if name not in self.values or y.is_graph_output() or not y.name:
                continue
            is_named = not y.name.startswith("onnx::")
            if self.foreign.producer == "pytorch" and is_named and self._is_uniform(name):
                self._split(name, y.name, [(use.node, use.idx) for use in y.uses()])
                self.foreign.graph.remove(node, safe=True)
            else:
                self._alias(name, y.name)

    def follow_scopes(self) -> None:
        """A node of another module than the tensor's reads the parameter of that module."""
        missing = {n for n in self.foreign.declared if n not in self.tensors}
        for name in [n for n in self.values if n in self.foreign.declared]:
            found: dict[str, list[tuple[Node, int]]] = {}
            for use in self.values[name].uses():
                other = _parameter_at(use.node, name, missing)
                if other is not None:
                    found.setdefault(other, []).append((use.node, use.idx))
            for other, uses in found.items():
                if self._is_uniform(name):
                    self._split(name, other, uses)
                else:
                    self._alias(name, other)

    def separate(self, patterns: Sequence[str]) -> None:
        """Let each use of the tensors asked for be one of its own."""
        for pattern in patterns:
            if not any(_matches(n, [pattern]) for n in self.values):
                raise ArgumentError(
                    f"separate={pattern!r} matches no tensor",
                    hint=known_names(pattern, sorted(self.values)),
                )
        for name in [n for n in self.values if _matches(n, patterns)]:
            uses = sorted(self.values[name].uses(), key=lambda u: u.node.name or "")
            for use in uses[1:]:
                label = use.node.name or use.node.op_type
                if self._split(name, f"{name}/{label}", [(use.node, use.idx)]):
                    self._alias(f"{name}/{label}", name)

    def restore_transposes(self) -> None:
        """A transposed copy of a parameter that is there itself becomes a node that transposes."""
        if self.foreign.producer != "pytorch":
            return
        named = [n for n in self.values if self._is_named(n) and self._rank(n) == 2]
        for copy in [n for n in self.values if not self._is_named(n) and self._rank(n) == 2]:
            origin = next((n for n in named if self._is_transposed(copy, n)), None)
            if origin is None:
                continue
            node = Node("", "Transpose", [self.values[origin]], num_outputs=1, name=f"{copy}/T")
            node.outputs[0].name = f"{copy}/T"
            node.outputs[0].type, node.outputs[0].shape = (
                self.values[copy].type, self.values[copy].shape,
            )  # fmt: skip
            self.values[copy].replace_all_uses_with(node.outputs[0])
            first = next(iter(self.foreign.graph))
            self.foreign.graph.insert_before(first, node)
            self._alias(origin, copy)

    def name_by_place(self) -> None:
        """Names that the older exporter lost: the module of the node, and the place in it."""
        for name, value in self.values.items():
            for source in self.foreign.folded.get(name, ()):
                if source in self.foreign.declared:
                    self._alias(name, source)
            if not name.startswith("onnx::"):
                continue
            for use in value.uses():
                part = _PARTS.get((use.node.op_type, use.idx))
                path = (use.node.name or "").strip("/").split("/")[:-1]
                if part is not None and path:
                    self._alias(name, ".".join((*path, part)))

    def _is_named(self, name: str) -> bool:
        """True for a tensor of the module's, and not one that the exporter computed."""
        if self.foreign.declared:
            return name in self.foreign.declared or name in self.kinds
        return is_named_by_torch(name)

    def _is_constant(self, name: str) -> bool:
        """True for what the exporter made, of a model whose parameters it names."""
        foreign = self.foreign
        if self.kinds.get(name) or name in foreign.declared or not self._is_float(name):
            return False
        if foreign.declared:
            made_of = set(foreign.folded.get(name, ())) & foreign.declared
            lost = (
                {n for n in foreign.declared if n not in self.tensors}
                - {source for sources in foreign.folded.values() for source in sources}
                - {a for found in self.aliases.values() for a in found}
            )
            return not made_of and (not lost or self._is_uniform(name))
        if foreign.producer != "pytorch" or not any("." in n for n in map(str, self.values)):
            return False
        if name.startswith("/"):
            return True
        # other tensors of ones and zeros are weights that were given another shape
        is_filler = name.startswith("onnx::") and self._is_uniform(name)
        return is_filler and all(
            use.node.op_type in _NORMALISING and use.idx in (1, 2)
            for use in self.values[name].uses()
        )

    def _is_shared(self, name: str) -> bool:
        if self.foreign.producer == "pytorch" or len(self.values[name].uses()) < 2:
            return False
        return bool(self.tensors[name].size > 1) and self._is_uniform(name)

    def _alias(self, name: str, other: str) -> None:
        if other != name:
            self.aliases.setdefault(name, []).append(other)

    def _split(self, name: str, other: str, uses: Collection[tuple[Node, int]]) -> bool:
        """Let uses of a tensor read one of their own, of the same content, if its name is free."""
        if other in self.tensors or not uses:
            return False
        value = value_like(self.values[name], other)
        for node, position in uses:
            node.replace_input_with(position, value)
        self.values[other], self.tensors[other] = value, self.tensors[name]
        if name in self.kinds:
            self.kinds[other] = self.kinds[name]
        self.separated.setdefault(name, []).append(other)
        return True

    def _rank(self, name: str) -> int:
        return len(self.tensors[name].shape) if self._is_float(name) else -1

    def _is_float(self, name: str) -> bool:
        dtype = element_type(self.tensors[name])
        return dtype is not None and dtype.is_floating_point

    def _is_uniform(self, name: str) -> bool:
        if not self._is_float(name) or not self.tensors[name].size:
            return False
        content = tensor_content(self.tensors[name]).ravel()
        return bool(content[0] == content[-1] and (content == content[0]).all())

    def _is_transposed(self, one: str, other: str) -> bool:
        x, y = self.tensors[one], self.tensors[other]
        if tuple(x.shape) != tuple(y.shape)[::-1] or x.dtype != y.dtype or self._is_uniform(one):
            return False
        content, turned = tensor_content(x), tensor_content(y).T
        return bool((content[0] == turned[0]).all() and (content == turned).all())


def is_named_by_torch(name: str) -> bool:
    """True for a name from a module of torch: what its exporters compute is called otherwise."""
    return not name.startswith(("onnx::", "/", "val_"))


def _parameter_at(node: Node, name: str, missing: Collection[str]) -> str | None:
    """The parameter missing in the file that a node reads as the tensor `name`; None for itself."""
    scopes = read_scopes(node.metadata_props.get(SCOPES, ""))
    if not scopes or name.rpartition(".")[0] in scopes:
        return None
    found = [n for n in missing if n.rpartition(".")[0] == scopes[-1]]
    alike = [n for n in found if n.rpartition(".")[2] == name.rpartition(".")[2]]
    if len(alike) == 1 or len(found) == 1:
        return (alike or found)[0]
    return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def element_type(tensor: Any) -> DType | None:
    """The element type of a tensor; None for one that we do not have."""
    try:
        return by_code(int(tensor.dtype))
    except DTypeError:
        return None
