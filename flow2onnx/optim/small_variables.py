"""Small variables that an optimizer moves together, as one tensor.

A node costs the runtime a microsecond or more, however little it computes, and the update of a
variable is up to fourteen of them: a network has hundreds of biases and scales.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flow2onnx.graph import Value
from flow2onnx.graph.types import dims, dtype_of, size_of
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.job import Job

__all__ = ["GroupStep", "small_groups"]

_MOST = 1 << 14  # elements of a small variable
_WHOLE = 1 << 17  # elements of the variables that move together, which the cache of a core holds
_FEWEST = 8  # variables that move together: fewer gain less than what joins them costs
_MOST_NAMES = 64  # of them: the builder infers shapes by constants of so many numbers at most


@dataclass(frozen=True)
class GroupStep(Step):
    """A `Step` that updates several variables, joined along their first axis.

    Variables and slots are asked for by the name of the first one.
    """

    names: tuple[str, ...] = field(kw_only=True)

    def slot(self, name: str, suffix: str, fill: float = 0.0) -> Value:
        """The optimizer's own tensors beside the variables."""
        return self.joined([self.job.slot(n, suffix, fill) for n in self.names])

    def assign(self, name: str, value: Value) -> None:
        """Make the parts of a value what the variables or slots hold after this call."""
        suffix = name.removeprefix(self.names[0])
        sizes = [dims(self.job.values[n])[0] for n in self.names]
        parts = self.b.several("Split", value, sizes, outputs=len(sizes), axis=0)
        for owner, part in zip(self.names, parts, strict=True):
            self.job.assign(f"{owner}{suffix}", part)

    def joined(self, values: Sequence[Value]) -> Value:
        """The values of all variables as one."""
        whole: Value = self.b.Concat(*values, axis=0)
        return whole

    def move(self, member: Optimizer, grads: Mapping[str, Value]) -> None:
        """Update the variables by their gradients."""
        w = self.joined([self.job.values[n] for n in self.names])
        g = self.joined([grads[n] for n in self.names])
        first = self.names[0]
        self.assign(first, member.update(self, first, w, g))


def small_groups(job: Job, member: Optimizer, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Those of the variables of an optimizer that move together.

    They have one type, one decay and one shape but for the first axis.
    """
    if not member.is_elementwise or job.is_divided:
        return
    alike: dict[object, list[str]] = defaultdict(list)
    for name in names:
        variable, w = job.variables[name], job.values[name]
        is_alone = variable.regularizer is not None or name in job.divided or name in job.kept
        has_own_rate = member.bias_scheduler is not None and variable.model_name == "bias"
        if not dims(w) or size_of(w) > _MOST or is_alone or has_own_rate:
            continue
        alike[dtype_of(w), dims(w)[1:], member.decay.of_variable(name)].append(name)
    for group in alike.values():
        yield from filter(lambda part: len(part) >= _FEWEST, _parts(job, group))


def _parts(job: Job, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Names in their order, a new tuple where the variables become too large together."""
    part, total = list[str](), 0
    for name in names:
        size = size_of(job.values[name])
        if part and (total + size > _WHOLE or len(part) == _MOST_NAMES):
            yield tuple(part)
            part, total = [], 0
        part.append(name)
        total += size
    if part:
        yield tuple(part)
