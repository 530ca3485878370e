"""`flow.function_config()`: how one job is compiled and run."""

from collections.abc import Callable
from typing import Any

from flow2onnx.config.flags import FLAGS, PLANNERS, POLICIES
from flow2onnx.config.kinds import failure
from flow2onnx.config.messages import Choice
from flow2onnx.config.surface import Surface
from flow2onnx.config.table import Record

__all__ = ["ExecutionConfig", "FunctionConfig", "FunctionDesc", "function_config"]


class _JobRecord(Record):
    """The settings of a job, and whether it trains."""

    is_train = False

    def set(self, name: str, value: object) -> object:
        super().set(name, value)
        self.is_train = self.is_train or name.startswith("train.")
        return None

    def copy(self) -> "_JobRecord":
        """An independent record of the same settings."""
        twin = _JobRecord(self.table)
        self.copy_to(twin)
        twin.is_train = self.is_train
        return twin


class FunctionDesc:
    """Read-only view of a configuration, under the names of OneFlow's protocol."""

    __slots__ = ("_prefix", "_record")
    _prefix: str
    _record: Record

    def __init__(self, record: Record, prefix: str = "") -> None:
        object.__setattr__(self, "_record", record)
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> Any:  # a value or a nested view
        if name in FunctionDesc.__slots__:  # half-made, as when being unpickled
            raise AttributeError(name)
        if name in ("job_config_proto", "function_attribute"):
            return self
        full = self._prefix + name.removesuffix("_conf" if name == "train_conf" else "")
        if any(n.startswith(f"{full}.") for n in self._record.table.rows):
            return FunctionDesc(self._record, f"{full}.")
        return self._record.value(full)

    def __setattr__(self, name: str, value: object) -> None:
        raise failure(f"function_desc.{name} cannot be set; it is read-only", "use the setter")

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Refuse: it is listed among the flags, and is none."""
        raise failure("function_desc is not a setting; it is the read-only view of all settings")

    def __repr__(self) -> str:
        return f"function_desc({self._record.values()!r})"


class _Group(Surface):
    """A group of flags, such as ``config.train``."""

    __slots__ = ("_record",)
    _record: Record

    def __init__(self, record: Record, prefix: str) -> None:
        object.__setattr__(self, "_record", record)
        super().__init__(record.table, lambda: record, prefix)

    @property
    def function_desc(self) -> FunctionDesc:
        """Read-only view of the configuration."""
        return FunctionDesc(self._record)


class PolicyWhiteList(_Group):
    """The memory planners that may be used."""

    __slots__ = ()

    def has(self, policy: str) -> bool:
        """True if a planner is on the list."""
        return Choice(POLICIES).check(f"{_LIST}.has", policy) in self._record.value(_LIST)

    def add(self, policy: str) -> None:
        """Allow a planner."""
        Choice(POLICIES).check(f"{_LIST}.add", policy)
        self._keep(lambda p: p == policy or self.has(p))

    def remove(self, policy: str) -> None:
        """Forbid a planner."""
        Choice(POLICIES).check(f"{_LIST}.remove", policy)
        self._keep(lambda p: p != policy and self.has(p))

    def policy_mem_size_first(self) -> str:
        """The name of the planner that places large tensors first."""
        return POLICIES[0]

    def policy_mutual_exclusion_first(self) -> str:
        """The name of the planner that places tensors by what they exclude."""
        return POLICIES[1]

    def policy_time_line(self) -> str:
        """The name of the planner that places tensors in the order of use."""
        return POLICIES[2]

    def _keep(self, allowed: Callable[[str], bool]) -> None:
        self._record.set(_LIST, tuple(filter(allowed, POLICIES)))


class PlannerList(_Group):
    """The memory planners that there are."""

    __slots__ = ()

    def show(self) -> list[str]:
        """Their names."""
        return list(PLANNERS)


class RuntimeGroup(_Group):
    """ONNX Runtime's own settings; three calls take any of them by the name it gives them.

    `lowering` takes the forms of our own lowerings by name.
    """

    __slots__ = ()

    def session_entry(self, name: str, value: str) -> None:
        """Add an entry of the session's configuration, such as 'session.disable_prepacking'."""
        self._add("runtime.session_entry", name, value)

    def run_entry(self, name: str, value: str) -> None:
        """Add an entry of the configuration of every run."""
        self._add("runtime.run_entry", name, value)

    def provider_option(self, provider: str, name: str, value: str) -> None:
        """Add an option of a provider by its tag, such as ``"cuda"``."""
        self._add("runtime.provider_option", f"{provider}.{name}", value)

    def lowering(self, name: str, form: str) -> None:
        """Ask for a form of a lowering, such as 'Conv.dW', 'im2col', wherever it is valid."""
        self._add("runtime.lowering", name, form)

    def _add(self, flag: str, name: str, value: str) -> None:
        self._record.set(flag, {**self._record.value(flag), name: value})


_LIST = "static_mem_alloc_policy_white_list"


class FunctionConfig(Surface):
    """How a job is compiled and run; every flag is a method and can also be assigned.

    >>> config = FunctionConfig()
    >>> config.train.primary_lr(0.1)
    >>> config.enable_inplace = False
    >>> config.values()
    {'train.primary_lr': 0.1, 'enable_inplace': False}
    >>> config.is_train, config.value("concurrency_width")
    (True, 128)
    """

    __slots__ = ("_record",)
    _record: _JobRecord

    def __init__(self) -> None:
        self._adopt(_JobRecord(FLAGS))

    def _adopt(self, record: _JobRecord) -> None:
        object.__setattr__(self, "_record", record)
        super().__init__(FLAGS, lambda: record)

    @property
    def is_train(self) -> bool:
        """True if jobs with this configuration train."""
        return self._record.is_train

    def mark(self, kind: str) -> None:
        """Make this the configuration of a ``"train"`` or a ``"predict"`` job."""
        if kind not in ("train", "predict"):
            raise failure(f"a job is of type 'train' or 'predict'; got {kind!r}")
        self._record.is_train = kind == "train"

    @property
    def function_desc(self) -> FunctionDesc:
        """Read-only view of the configuration."""
        return FunctionDesc(self._record)

    @property
    def static_mem_alloc_policy_white_list(self) -> PolicyWhiteList:
        """The memory planners that may be used."""
        return PolicyWhiteList(self._record, f"{_LIST}.")

    @property
    def static_mem_alloc_algo_white_list(self) -> PlannerList:
        """The memory planners that there are."""
        return PlannerList(self._record, "static_mem_alloc_algo_white_list.")

    @property
    def runtime(self) -> RuntimeGroup:
        """ONNX Runtime's own settings."""
        return RuntimeGroup(self._record, "runtime.")

    def value(self, name: str) -> Any:  # of the kind the flag's row names
        """The value of a flag, or its default, by full name such as ``"train.primary_lr"``.

        Dicts come with the defaults of their fields filled in.
        """
        return self._record.value(name)

    def values(self) -> dict[str, Any]:  # of the kinds the flags' rows name
        """The values set explicitly, by full name; an alias appears as the flag it means."""
        return self._record.values()

    def source(self, name: str) -> str | None:
        """Where in the user's program a flag was set last, or None if it was not."""
        return self._record.source(name)

    def copy(self) -> "FunctionConfig":
        """An independent configuration with the same settings."""
        twin = FunctionConfig()
        twin._adopt(self._record.copy())
        return twin

    def session_options(self) -> dict[str, Any]:  # of the types that the fields have
        """Fields of `Options` and entries of the session that differ from the defaults."""
        return self._record.session_options()

    def providers(self) -> tuple[str, ...]:
        """Providers asked for besides that of the placement."""
        return self._record.providers()

    def provider_options(self, provider: str) -> dict[str, str]:
        """Options of a provider, such as ``"tensorrt"``, that differ from its defaults."""
        return self._record.provider_options(provider)

    def __copy__(self) -> "FunctionConfig":
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> "FunctionConfig":
        return self.copy()

    def __repr__(self) -> str:
        kind = "train" if self.is_train else "predict"
        return f"<configuration of a {kind} job: {self.values()!r}>"

    def _group(self, name: str, full: str) -> Surface:
        super()._group(name, full)  # refuses unknown names
        return _Group(self._record, f"{full}.")


# Each of the three is the class itself, as in OneFlow: isinstance() works with any of them.
function_config = ExecutionConfig = FunctionConfig
