"""The report on a model that was made trainable: what is trained, what it costs, in five lines."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from flow2onnx_runtime import kernels, view
from flow2onnx_runtime.view.texts import shape_text

from flow2onnx.compile import CompiledJob
from flow2onnx.export.footprint import footprint
from flow2onnx.graph.verify import missing_kernels
from flow2onnx.imported.import_check import ImportCheck
from flow2onnx.imported.parameters import Parameter

__all__ = ["TrainingReport", "report_on"]

_HELD = ("frozen", "not chosen")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """The decisions about a model, and the needs of its step.

    `left_alone` are the constants by the reason why they are not trained; `shared` the trained
    tensors that are read in several places, or have several names; `memory` is in bytes by kind, of
    one row where the batch is free.
    """

    job: str
    trained: tuple[Parameter, ...]
    frozen: tuple[Parameter, ...]
    shared: tuple[str, ...]
    left_alone: Mapping[str, int]
    check: ImportCheck
    nodes: int
    expanded: tuple[str, ...]
    without_kernel: tuple[str, ...]
    memory: Mapping[str, int]
    is_free: bool

    def __str__(self) -> str:
        return "\n".join(f"{name:<11} {text}" for name, text in self.lines().items())

    def __repr__(self) -> str:
        held = f", {len(self.frozen)} frozen" if self.frozen else ""
        return f"<report on {self.job}: {_tensors(self.trained)} trained{held}; {self.check}>"

    def _repr_html_(self) -> str:
        """The lines and the tensors with the decision about each, for a notebook."""
        rows = [
            (p.name, p.dtype, shape_text(p.shape), "trained" if p.is_trained else p.reason)
            for p in (*self.trained, *self.frozen)
        ]
        tensors = view.table(("tensor", "type", "shape", ""), rows)
        return view.html_block(f"training of {self.job}", view.facts_table(self.lines()), tensors)

    def lines(self) -> dict[str, str]:
        """The five lines, by what they are about."""
        shared = f", {len(self.shared)} shared: {_some(self.shared)}" if self.shared else ""
        return {
            "trained": f"{_tensors(self.trained)}, {_numbers(self.trained)}{shared}",
            "not trained": self._not_trained(),
            "import": str(self.check),
            "kernels": self._kernels(),
            "memory": self._memory(),
        }

    def _not_trained(self) -> str:
        parts = [f"{len(self.frozen)} frozen, {_numbers(self.frozen)}"] * bool(self.frozen)
        parts += [f"{count} constant: {why}" for why, count in self.left_alone.items()]
        return "; ".join(parts) or "nothing"

    def _kernels(self) -> str:
        if self.without_kernel:
            return f"the onnxruntime here has none on the CPU for {'; '.join(self.without_kernel)}"
        more = f", which expands {', '.join(self.expanded)}" if self.expanded else ""
        return f"all {self.nodes} nodes of the step have one in the onnxruntime here{more}"

    def _memory(self) -> str:
        row = " a row of the batch" if self.is_free else ""
        state = sum(n for kind, n in self.memory.items() if kind in _OF_STATE)
        constants, peak = self.memory["constants"], self.memory["activations"]
        return (
            f"{_size(state)} of weights and optimizer state, {_size(constants)} of "
            f"constants, {_size(peak)} of activations{row}"
        )


_OF_STATE = ("weights", "optimizer state")


def report_on(
    step: CompiledJob,
    parameters: Sequence[Parameter],
    several: Collection[str],
    check: ImportCheck,
) -> TrainingReport:
    """The report on a step; `several` are the tensors that are read in several places."""
    trained = tuple(p for p in parameters if p.is_trained)
    frozen = tuple(p for p in parameters if p.reason in _HELD)
    others = Counter(p.reason for p in parameters if not p.is_trained and p.reason not in _HELD)
    expanded, missing = missing_kernels(step.model, kernels())
    memory = Counter[str]()
    for line in footprint(step):
        memory[line.kind] += line.bytes
    return TrainingReport(
        job=step.spec.name,
        trained=trained,
        frozen=frozen,
        shared=tuple(p.name for p in trained if p.aliases or p.name in several),
        left_alone=dict(others),
        check=check,
        nodes=sum(1 for _ in step.model.graph.all_nodes()),
        expanded=tuple(expanded),
        without_kernel=tuple(missing),
        memory=memory,
        is_free=any(not v.shape.is_static() for v in step.model.graph.inputs if v.shape),
    )


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.{min(unit, 1)}f} {_UNITS[unit]}"


def _tensors(parameters: Sequence[Parameter]) -> str:
    return f"{len(parameters)} tensor{'s' * (len(parameters) != 1)}"


def _numbers(parameters: Sequence[Parameter]) -> str:
    return f"{sum(p.size for p in parameters):,} numbers"


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
