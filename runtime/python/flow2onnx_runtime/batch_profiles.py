"""Shapes that a provider plans its engines for, where a model leaves its rows free.

TensorRT builds an engine for the shapes that it has seen, which takes minutes, and builds another
for the first batch outside of them. Told the least, the best and the largest batch beforehand, it
builds one.
"""

from collections.abc import Mapping, Sequence

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.input_shapes import input_shapes
from flow2onnx_runtime.provider_checks import Model, ProviderSpec, split
from flow2onnx_runtime.providers import provider_named

__all__ = ["Rows", "check_rows", "with_profile"]

Rows = tuple[int, int, int]  # the least, the best and the most of a batch

_Shape = list[int | None]  # None for a free axis


def check_rows(rows: object) -> None:
    """Raise `OptionsError` unless `rows` are three counts, none smaller than the one before."""
    match rows:
        case (int(least), int(best), int(most)) if 1 <= least <= best <= most:
            return
    raise OptionsError(
        f"batch_profile is {rows!r}",
        hint="give the least, the best and the most rows of a batch, such as (1, 8, 32)",
    )


def with_profile(model: Model, providers: Sequence[ProviderSpec], rows: Rows) -> list[ProviderSpec]:
    """The providers, those that plan ahead with the shapes of batches of so many rows.

    Inputs whose sizes are all given need none. Raises `OptionsError` for an input with another free
    axis than its first one, with a name that no option can hold, and for shapes given by hand too.
    """
    return [_plan(model, provider, rows) for provider in providers]


def _plan(model: Model, provider: ProviderSpec, rows: Rows) -> ProviderSpec:
    name, given = split(provider)
    options = provider_named(name).profile_options
    if options is None:
        return provider
    twice = [option for option in options if option in given]
    if twice:
        raise OptionsError(
            f"batch_profile is given, and {twice[0]} of {name} too", hint="give one of the two"
        )
    shapes = _free_shapes(model)
    if not shapes:
        return provider
    texts = [_text(shapes, count) for count in rows]
    return name, {**given, **dict(zip(options, texts, strict=True))}


def _text(shapes: Mapping[str, _Shape], rows: int) -> str:
    """``x:8x3x224x224,y:8x5``: each input with `rows` for its free axis."""
    return ",".join(
        f"{name}:{'x'.join(str(rows if size is None else size) for size in shape)}"
        for name, shape in shapes.items()
    )


def _free_shapes(model: Model) -> dict[str, _Shape]:
    """The shapes of the inputs whose rows are free, by name."""
    shapes: dict[str, _Shape] = {
        name: [size if isinstance(size, int) else None for size in shape]
        for name, shape in input_shapes(model, "batch_profile").items()
        if not all(isinstance(size, int) for size in shape)
    }
    for name, shape in shapes.items():
        free = [axis for axis, size in enumerate(shape) if size is None]
        if free != [0]:
            raise OptionsError(
                f"batch_profile says how many rows there are, and axis {free[-1]} of {name} is "
                f"free too",
                hint="give trt_profile_min_shapes, trt_profile_opt_shapes and "
                "trt_profile_max_shapes by hand, or export with that axis fixed",
            )
        if {":", ","} & set(name):
            raise OptionsError(
                f"input {name!r} has a name that a shape profile cannot hold",
                hint="name it without colon and comma",
            )
    return shapes
