"""A job that is open in parts: models that run one after another and hand values to each other."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from flow2onnx_runtime import Program, State
from flow2onnx_runtime.buffers import new_buffer
from flow2onnx_runtime.dtypes import Array, element_named
from flow2onnx_runtime.program import DeviceFeeds, TensorInfo

from flow2onnx.compile.names import LINK
from flow2onnx.engine.executable import OpenedModel
from flow2onnx.engine.opening import Opening
from flow2onnx.graph.types import dims, dtype_of

__all__ = ["PartedModel"]

# What happens between two parts: it takes what one made, and gives what later ones are fed.
Between = Callable[[Mapping[str, Array]], Mapping[str, Array]]
# What happens before a part: it gives feeds of this program, once they are there.
Before = Callable[[Program], Mapping[str, Array]]
_NO_LINKS: Mapping[str, Any] = MappingProxyType({})


class PartedModel(OpenedModel):
    """The models of an opening's parts, or its one model.

    `before` is called before each, and gives it what it is fed; `between` is called behind each. It
    takes the results of the part, and what `written_by` says that the part's program has written
    through `links`, which are values that others read and write too.
    """

    def __init__(
        self,
        opening: Opening,
        state: State,
        suffix: str = "",
        *,
        between: Between,
        before: Before = lambda program: {},
        links: Mapping[str, Any] = _NO_LINKS,
        written_by: Callable[[Program], Mapping[str, Array]] = lambda program: {},
    ) -> None:
        self._before, self._between = before, between
        if not opening.parts:
            super().__init__(opening, state, suffix, links)
            self._models: Sequence[OpenedModel] = [self]
        else:
            links = {**links, **_links(opening)}
            self._models = [
                OpenedModel(part, state, f"{suffix}/{k}", links)
                for k, part in enumerate(opening.parts)
            ]
            self.program, self.opening, self._state = self._models[0].program, opening, state
        self._written = [written_by(model.program) for model in self._models]

    @property
    def feeds(self) -> tuple[TensorInfo, ...]:
        """The feeds of all parts, each once; not those given between them."""
        infos = {info.name: info for model in self._models for info in model.program.feeds}
        return tuple(infos[name] for name in self.opening.job.feeds if name in infos)

    @property
    def results(self) -> tuple[TensorInfo, ...]:
        """The results of the parts, in their order."""
        return tuple(info for model in self._models for info in model.program.results)

    @property
    def writes(self) -> tuple[str, ...]:
        """The state that any part gives a next value."""
        return tuple(name for model in self._models for name in model.program.writes)

    def run(
        self,
        feeds: Sequence[Array] | DeviceFeeds,
        guard: Callable[[list[Array]], None] | None = None,
    ) -> list[Array]:
        """One run of each part; `guard` sees the first one's results, in which the losses are.

        `feeds` may be left out where `before` gives them. What fails behind the first part leaves
        state torn, of which some has its next value and some has not.
        """
        assert not isinstance(feeds, DeviceFeeds), "ranks are fed from the host"
        given = dict(zip((info.name for info in self.feeds), feeds, strict=bool(feeds)))
        found, moved = list[Array](), set[str]()
        try:
            for model, written in zip(self._models, self._written, strict=True):
                program = model.program
                given.update(self._before(program))
                arrays = [given[info.name] for info in program.feeds]
                check = guard if model is self._models[0] else None
                results = OpenedModel.run(model, arrays, check)
                moved.update(program.writes)
                given.update(self._between({**program.by_name(results), **written}))
                found += results
        except BaseException:
            if moved and not moved.issuperset(self.writes):
                self._state.torn |= set(self.writes)
            raise
        return found


def _links(opening: Opening) -> dict[str, Any]:
    """Memory for what the parts hand to each other, by name: each where the parts run."""
    made = [(v, part) for part in opening.parts for v in part.model.graph.outputs]
    return {
        str(v.name): new_buffer(part.options.device, dims(v), element_named(dtype_of(v).name)).value
        for v, part in made
        if str(v.name).startswith(LINK)
    }
