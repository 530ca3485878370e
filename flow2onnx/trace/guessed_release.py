"""Defaults that calls leave to a release of OneFlow which the text of a program does not tell."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Signature
from typing import Any

from flow2onnx.errors import ShapeError
from flow2onnx.trace.releases import GENERATIONS, is_older
from flow2onnx.trace.symbols import symbols

__all__ = ["GuessedRelease", "Layout", "changed_layout"]

_log = logging.getLogger("flow2onnx.session")
_PARAMETERS = ("data_format", "axis")  # that say where the channels are


@dataclass(frozen=True)
class Layout:
    """A parameter of an operator whose default is `old` before release `until`, and then `new`."""

    operator: str
    parameter: str
    until: str
    old: Any
    new: Any

    @property
    def last(self) -> str:
        """The last release with the old default."""
        *start, number = self.until.split(".")
        return ".".join((*start, str(int(number) - 1)))


def changed_layout(
    operator: str, current: Signature, earlier: Sequence[tuple[str, Signature]]
) -> Layout | None:
    """The parameter that says where the channels are, if its default was another one once."""
    for until, signature in earlier:
        for name in _PARAMETERS:
            if name in signature.parameters and name in current.parameters:
                old, new = (s.parameters[name].default for s in (signature, current))
                if old != new and Signature.empty not in (old, new):
                    return Layout(operator, name, until, old, new)
    return None


@dataclass(frozen=True)
class _Call:
    """A call at `place`, as ``train.py:14``, that leaves its layout to the guessed `release`."""

    layout: Layout
    release: str
    place: str | None

    @property
    def is_early(self) -> bool:
        """True if the guess is a release with the old default."""
        return is_older(self.release, self.layout.until)

    @property
    def values(self) -> tuple[Any, Any]:
        """The default in the guessed release, and the other one."""
        old, new = self.layout.old, self.layout.new
        return (old, new) if self.is_early else (new, old)

    @property
    def other_release(self) -> str:
        """A release with the other default."""
        return GENERATIONS["c"] if self.is_early else self.layout.last


@dataclass
class GuessedRelease:
    """The signs in the jobs of a session of a release that was guessed.

    `since` is the newest of the releases that first had what they use; in `fitting` are guesses
    that alone fit the shapes of some operands.
    """

    since: str = "0.0.1"
    fitting: set[str] = field(default_factory=set)
    _calls: list[_Call] = field(default_factory=list)
    _warned: set[_Call] = field(default_factory=set)

    def use(self, symbol: str, given: Sequence[str] = (), newer: Mapping[str, str] = {}) -> None:
        """Note a symbol that is called, with the names `given`; releases of `newer` names."""
        row = symbols().get(symbol)
        first = row.releases.partition("–")[0] if row else ""
        for release in (first, *(newer[name] for name in given if name in newer)):
            if release[:1].isdigit() and is_older(self.since, release):
                self.since = release

    def leave(
        self, layout: Layout, release: str, arguments: Mapping[str, Any], place: str | None
    ) -> None:
        """Note a call that leaves `layout` to the guess `release`.

        Raises ShapeError where the channels of its operands are as in the other releases only.
        """
        call = _Call(layout, release, place)
        guessed, other = call.values
        fits, fits_other = (_fits(layout, arguments, value) for value in (guessed, other))
        if fits_other and not fits:
            when = "from" if call.is_early else "before"
            raise ShapeError(
                f"the operands have their channels as {layout.parameter} {other!r} says, which is "
                f"the default {when} OneFlow {layout.until}, and {guessed!r} is assumed",
                hint=f"run it with --api {call.other_release}, or pass {layout.parameter}",
            )
        if fits and not fits_other:
            self.fitting.add(release)
        self._calls.append(call)

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Once the jobs inside are compiled, or fail, warn of a guess that changes results."""
        try:
            yield
        finally:
            new = [c for c in dict.fromkeys(self._calls) if self._is_open(c)]
            self._calls.clear()
            self._warned.update(new)
            if new:
                _log.warning("%s", self._warning(new))

    def _is_open(self, call: _Call) -> bool:
        """True for a call of which nothing says that the guess is right."""
        is_told = not call.is_early and not is_older(self.since, call.layout.until)
        return not (is_told or call.release in self.fitting or call in self._warned)

    def _warning(self, calls: Sequence[_Call]) -> str:
        """The text that says what is not known, what is assumed, and how to tell it."""
        first, layout = calls[0], calls[0].layout
        others = len(calls) - 1
        more = f" (and {others} more call{'s' * (others > 1)})" if others else ""
        why = "nothing tells the release of OneFlow that this is for"
        if not is_older(self.since, layout.until):  # than the form of the decorator
            why = f"this is written as for OneFlow {first.release}, with names from {self.since} on"
        pair = (first.release, first.other_release)
        early, late = pair if first.is_early else pair[::-1]
        return (
            f"{first.place}: {why}, and flow.{layout.operator}{more} leaves {layout.parameter} to "
            f"it: {layout.old!r} before {layout.until}, {layout.new!r} since. {first.values[0]!r} "
            f"is assumed; say --api {early} or --api {late}, or pass {layout.parameter}"
        )


def _fits(layout: Layout, arguments: Mapping[str, Any], value: Any) -> bool:
    """False if operands contradict each other with their channels where `value` says."""
    shapes = [a.shape for a in arguments.values() if hasattr(a, "shape")]
    if len(shapes) < 2 or len(shapes[0]) < 2:
        return True
    x, w, *_ = shapes
    if layout.parameter == "axis":
        return bool(w == (x[value],))
    if not len(x) == len(w) == len(value):
        return True  # the operator itself says what is wrong
    axis = value.index("C")
    inward = w[0] if "transpose" in layout.operator else w[axis] * arguments.get("groups", 1)
    return bool(inward == x[axis])
