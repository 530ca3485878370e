"""Job: one job function being traced. All state of a tracing lives here."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from flow2onnx_runtime.axis_parts import part_length

from flow2onnx.dtypes import DType, int64
from flow2onnx.errors import JobError, VariableError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.types import bounds_of, dtype_of
from flow2onnx.source import user_frame
from flow2onnx.trace.host import HostPart
from flow2onnx.trace.initializers import Constant, Initializer, from_conf
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.variables import Variable, check_same

__all__ = ["Job", "Kept", "Objective", "Region", "Watch", "input_name"]


@dataclass(frozen=True)
class Region:
    """Nodes that have one gradient together: an operator whose gradient is its own."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    vjp: Callable[..., Any]


@dataclass(frozen=True)
class Watch:
    """Values (or the gradient of one) to show to `handler` at every call.

    The handler gets, for each value, the list of what the devices of a mirrored job have of it;
    in `values` those of one value stand together. One that writes something is called in one
    process, `is_once`, where several train a job.
    """

    values: tuple[Value, ...]
    handler: Callable[..., Any]
    is_gradient: bool = False
    is_once: bool = False


@dataclass(frozen=True)
class Objective:
    """A call of `minimize`: losses, and the optimizer that trains variables by them."""

    optimizer: Any
    names: frozenset[str]
    losses: list[Value]


@dataclass(frozen=True)
class Kept:
    """The part of a variable that a process keeps.

    "split": its own along axis `number`; "at": all of it, in process `number` alone.
    """

    kind: Literal["split", "at"]
    number: int


def input_name(name: str) -> str:
    """The name of an input whose parameter has the name of a variable.

    The variable keeps it, as checkpoints know it by that.
    """
    return f"{name}_input"


def _kind(loss: Value, is_dynamic: bool) -> str:
    """The type of a loss, whose shape is an upper bound if it is dynamic."""
    return f"{'dynamic ' * is_dynamic}{dtype_of(loss).name}{bounds_of(loss)}"


@dataclass(kw_only=True)
class Job:
    """The graph under construction and what the body has said so far about training it.

    A mirrored job on several devices has one piece of its inputs, losses and results on each. Of a
    job that several processes train, of which this one does its part, `ranks` says how many they
    are, `sent` what it gives the others, and `summed` has losses that are sums over the processes.
    Of the slots of a variable in `divided` each process keeps a part; `moved` has, for an output
    that all gather, the variables whose parts it holds. Of a variable in `kept`, and of its slots,
    process `rank` keeps a part; the job `is_divided` where processes compute different things, as
    its hints and placements ask. Where an export tells of several devices, `shards`, what these
    would keep is in `told`, and one process computes all.
    """

    spec: JobSpec
    _: KW_ONLY
    opset: int = 21
    seed: int = 0
    pieces: int = 1
    ranks: int = 1
    rank: int = 0
    shards: int = 1
    b: Builder = field(init=False)
    is_trainable: bool = field(init=False)
    inputs: list[Value] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    updates: dict[str, Value] = field(default_factory=dict)
    losses: list[Value] = field(default_factory=list)
    is_loss_dynamic: bool = False
    sent: dict[str, Value] = field(default_factory=dict)
    summed: set[Value] = field(default_factory=set)
    divided: frozenset[str] = frozenset()
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    told: dict[str, Kept] = field(default_factory=dict)
    is_divided: bool = False
    loss_elements: int | None = None  # that losses are divided by, where shapes do not say so
    repeated: set[Value] = field(default_factory=set)  # losses that all sharers count
    sharers: int | None = None  # that a batch is shared among, if not the ranks
    objectives: list[Objective] = field(default_factory=list)
    trained: frozenset[str] = frozenset()
    averages: dict[str, float] = field(default_factory=dict)  # of weights: state tensor to decay
    watches: list[Watch] = field(default_factory=list)
    regions: dict[Node, Region] = field(default_factory=dict)
    user_variables: dict[str, Any] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    placements: list[tuple[str, int | None]] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    host: HostPart = field(default_factory=HostPart)
    body_ended: bool = False
    _namespaces: list[str] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)
    _counters: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.b = Builder(self.opset)
        self.is_trainable = self.spec.kind == "train"
        self.views.append(self.spec.view)

    @contextmanager
    def namespace(self, name: str) -> Iterator[None]:
        """Prefix the names of operators and variables made inside with ``name-``."""
        self._namespaces.append(name)
        try:
            yield
        finally:
            self._namespaces.pop()

    @property
    def spread(self) -> int:
        """How many devices hints and placements are for: processes, or those that are told of."""
        return max(self.ranks, self.shards)

    @property
    def device_tag(self) -> str:
        """Where operators and variables made here are placed."""
        if self.placements:
            return self.placements[-1][0]
        scope = self.spec.config.value("default_placement_scope")
        return "cpu" if scope is None else str(scope.device_tag)

    def full_name(self, name: str) -> str:
        """`name` below the current namespaces."""
        return "-".join([*self._namespaces, name])

    def name_op(self, name: str | None, kind: str) -> str:
        """The name of a new operator: the user's, which may be used once, or a generated one."""
        if name is None:
            full = self.full_name(kind)
            self._counters[full] += 1
            return f"{full}_{self._counters[full] - 1}"
        if not isinstance(name, str):
            raise JobError(f"name must be a str, got {name!r}")
        full = self.full_name(name)
        if full in self._used:
            raise JobError(
                f"op_name: {full} already exist in job",
                hint="operator names are unique in a job, default ones too: pass another name=",
            )
        self._used.add(full)
        return full

    def name_layer(self, name: str, kind: str) -> str:
        """The name of a layer; one left at its default is numbered where the release did so."""
        if name != kind or self.spec.layer_names == "fixed":
            return name
        full = f"layer:{self.full_name(kind)}"
        self._counters[full] += 1
        return kind if self._counters[full] == 1 else f"{kind}_{self._counters[full] - 1}"

    def state(self, variable: Variable) -> Value:
        """The value of a variable in this job; the first mention makes it an input of the graph."""
        known = self.variables.get(variable.name)
        if known is not None:
            check_same(known, variable, self.spec.name)
            return self.values[variable.name]
        self.variables[variable.name] = variable
        value = self._state_input(variable)
        self.values[variable.name] = value
        return value

    def _state_input(self, variable: Variable) -> Value:
        feed = next((v for v in self.inputs if v.name == variable.name), None)
        if feed is None:
            return self.b.input(variable.name, self.kept_shape(variable), variable.dtype)
        self.b.rename(feed, input_name(variable.name))
        value = self.b.input(f"state/{variable.name}", self.kept_shape(variable), variable.dtype)
        value.name = variable.name
        return value

    def kept_shape(self, variable: Variable) -> tuple[int, ...]:
        """The shape of what this process keeps of a variable or slot."""
        kept = self.kept.get(variable.owner or variable.name)
        if kept is None or kept.kind == "at" or not self.body_ended:
            return variable.kept_shape
        shape = list(variable.shape)
        shape[kept.number] = part_length(shape[kept.number], self.ranks, self.rank)
        return tuple(shape)

    def slot(self, owner: str, suffix: str, fill: float = 0.0) -> Value:
        """The optimizer's own tensor beside variable `owner`, such as ``w-momentum``."""
        of = self.variables[owner]
        return self.state(
            Variable(
                name=f"{owner}-{suffix}",
                shape=of.shape,
                dtype=of.dtype,
                initializer=Constant(fill),
                role="slot",
                is_trainable=False,
                owner=owner,
                parts=self.ranks if owner in self.divided else 1,
            )
        )

    def counter(
        self, name: str, dtype: DType = int64, start: float = 0, shape: tuple[int, ...] = (1,)
    ) -> Value:
        """A number that the job itself keeps."""
        return self.state(
            Variable(
                name=name,
                shape=shape,
                dtype=dtype,
                initializer=Constant(start),
                role="counter",
                is_trainable=False,
            )
        )

    def assign(self, name: str, value: Value) -> None:
        """Make `value` what variable `name` holds after this call."""
        if name in self.updates:
            raise VariableError(f"variable {name!r} is written twice in one job")
        self.updates[name] = value

    def named(self, logical_name: str) -> Value:
        """The value of a logical blob name ``op/out``, or of a variable or an input."""
        for node in self.b.nodes:
            for value in node.outputs:
                if value.name == logical_name:
                    return value
        name = logical_name.removesuffix("/out")
        if name in self.values:
            return self.values[name]
        for value in (*self.inputs, *self.b.graph.inputs):
            if value.name == name:
                return value
        raise self.error(f"no blob is called {logical_name!r}", hint="see blob.logical_blob_name")

    def add_region(self, region: Region, start: int) -> None:
        """Give the nodes appended since `start` the gradient of `region`."""
        for node in self.b.nodes[start:]:
            self.regions[node] = region

    def check_own(self, value: Value, what: str) -> None:
        """Raise if `value` was made in another tracing, whose graph knows nothing of this one."""
        if value.graph is not self.b.graph:
            raise self.error(
                f"{what} {value.name} was made in another job",
                hint="blobs live in one job function: share variables between jobs by name",
            )

    def add_loss(self, loss: Value, is_dynamic: bool = False) -> None:
        """One more thing to minimise; all losses of a job share shape and element type."""
        self.check_own(loss, "loss")
        for other in self.losses:
            if _kind(other, self.is_loss_dynamic) != _kind(loss, is_dynamic):
                raise JobError(
                    f"losses differ: {other.name} is {_kind(other, self.is_loss_dynamic)}, "
                    f"{loss.name} is {_kind(loss, is_dynamic)}",
                    hint="all losses of a job must have the same shape and dtype",
                )
        self.losses.append(loss)
        self.is_loss_dynamic = is_dynamic

    def train_with(
        self, optimizer: Any, names: frozenset[str], losses: list[Value] | None = None
    ) -> None:
        """Let `optimizer` train the variables `names` by `losses`, or by all that there are.

        Calls whose variables differ stand side by side. As in OneFlow a later call replaces one
        that has variables of it, and the losses add up.
        """
        before = self.objectives if losses and names and not self.trained & names else []
        own = losses if before and losses else self.losses
        self.objectives = [*before, Objective(optimizer, names, list(own))]
        self.trained = frozenset().union(*(o.names for o in self.objectives))
        self.is_trainable = True

    def trainable(self) -> dict[str, Value]:
        """The variables to be trained, by name, in order of creation; integers are not."""
        return {
            name: self.values[name]
            for name, v in self.variables.items()
            if v.role == "variable"
            and v.is_trainable
            and v.dtype.is_floating_point
            and name in self.trained
        }

    @staticmethod
    def seed_for(base: int, name: str, seed: int | None = None) -> float:
        """The seed of a random node: the user's, or one that the session's and its name decide.

        Below 2**24, so that the float attribute holds it exactly.
        """
        return float((zlib.crc32(f"{base}/{name}".encode()) if seed is None else seed) % 2**24)

    def random_seed(self, name: str, seed: int | None = None) -> float:
        """The seed of a random node of this job."""
        return self.seed_for(self.seed, name, seed)

    def default_initializer(self, name: str) -> Initializer:
        """The initializer of variables that come without one, by the job's configuration."""
        conf = self.spec.config.value("default_initializer_conf")
        if conf is None:
            raise VariableError(
                f"variable {name!r} has no initializer",
                hint="pass initializer=, or set config.default_initializer_conf({...})",
            )
        return from_conf(conf)

    def error(self, message: str, hint: str | None = None) -> JobError:
        """A JobError that knows this job and the user's line: of the job, after its body ran."""
        source = self.spec.source if self.body_ended else user_frame()
        return JobError(message, job=self.spec.name, source=source, hint=hint)
