"""Names that were probably meant: a few letters apart, or with the same words."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["did_you_mean", "near_names", "spelling_hint"]

Otherwise = TypeVar("Otherwise", str, None)

_SHORT = 5  # in words of fewer letters one may be wrong, in others two
_ABBREVIATED = 3  # letters that a beginning has which says what it is of


def spelling_hint(
    name: str, known: Iterable[str], otherwise: Otherwise, *, most: int = 3, prefix: str = ""
) -> str | Otherwise:
    """``did you mean a or b?`` with names of `known` spelt like `name`; `otherwise` without any.

    `prefix` stands before each of them.

    >>> spelling_hint("wieght", ["weight", "bias"], "there are weight, bias", prefix="hidden-")
    'did you mean hidden-weight?'
    """
    return did_you_mean([prefix + near for near in near_names(name, known, most)], otherwise)


def did_you_mean(names: Sequence[str], otherwise: Otherwise) -> str | Otherwise:
    """The question whether one of the names was meant; `otherwise` if there are none."""
    return f"did you mean {' or '.join(names)}?" if names else otherwise


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names of `known` that are spelt like `name` or have all of its words, nearest first.

    A word that is another one is no misspelling, however many letters they share: ``swiglu`` is
    neither ``silu`` nor ``gelu``.

    >>> near_names("batchnorm", ["batch_norm", "layer_norm"])
    ['batch_norm']
    >>> near_names("mixed_precision", ["enable_auto_mixed_precision", "precision"])
    ['enable_auto_mixed_precision']
    """
    ranked = [(_distance(name, other), other) for other in dict.fromkeys(known)]
    near = sorted((found, other) for found, other in ranked if found is not None)
    return [other for _, other in near[:most]]


def _distance(name: str, other: str) -> tuple[int, int] | None:
    """Words too many, then wrong letters; None where one is not meant by the other."""
    wrong = _wrong_letters("".join(_words(name)), "".join(_words(other)))
    if wrong is not None and _pairs(name, other):
        return 0, wrong
    return _words_within(_words(name), _words(other))


def _pairs(name: str, other: str) -> bool:
    """True unless both have several words of which one is another than its counterpart."""
    mine, others = _words(name), _words(other)
    if len(mine) != len(others):
        return True
    return all(_wrong_letters(a, b) is not None for a, b in zip(mine, others, strict=True))


def _words_within(mine: list[str], others: list[str]) -> tuple[int, int] | None:
    """The same for a name that the other begins with, or whose words it has all."""
    start = "".join(mine)
    if len(start) < _ABBREVIATED:
        return None
    if set(mine) <= set(others) or "".join(others).startswith(start):
        return max(1, len(others) - len(mine)), 0
    short = len(mine) == len(others) and min(map(len, mine)) >= _ABBREVIATED
    is_begun = short and all(b.startswith(a) for a, b in zip(mine, others, strict=True))
    return (1, 0) if is_begun else None


def _words(name: str) -> list[str]:
    """``useXla_jit`` as use, xla and jit."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[\W_]+", parted.lower()) if word]


def _wrong_letters(a: str, b: str) -> int | None:
    """Letters wrong, missing, too many or exchanged; None if they are too many for a mistake."""
    shorter = min(len(a), len(b))
    allowed = 0 if shorter < 2 else 1 if shorter < _SHORT else 2
    if a == b or abs(len(a) - len(b)) > allowed:
        return 0 if a == b else None
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if older and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1] if row[-1] <= allowed else None
