"""Inputs made of others at random, where no fuzzer is at hand that looks at coverage."""

import random
from collections.abc import Iterator, Sequence

__all__ = ["mutants"]

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63,
             2**64 - 1)  # fmt: skip


def mutants(
    seeds: Sequence[bytes], tokens: Sequence[bytes], count: int, seed: int = 0
) -> Iterator[bytes]:
    """Inputs of one to eight changes each, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            _change(rng, data, seeds, tokens)
        yield bytes(data)


def _change(
    rng: random.Random, data: bytearray, seeds: Sequence[bytes], tokens: Sequence[bytes]
) -> None:
    """Change, cut, repeat or replace a part; or write a token, a number or a part of another."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((1, 1, 2, 4, 8, 64)))
    other = rng.choice(seeds)
    place = rng.randrange(len(other) + 1)
    choices = (
        rng.randbytes(end - start),
        b"",
        bytes(data[start:end]) * rng.choice((2, 3, 100)),
        rng.choice(tokens) if tokens else b"",
        rng.choice(_EXTREMES).to_bytes(8, "little")[: rng.choice((1, 2, 4, 8))],
        str(rng.choice(_EXTREMES)).encode(),
        other[place : place + rng.randrange(64)],
    )
    data[start : end if rng.random() < 0.7 else start] = rng.choice(choices)
    if rng.random() < 0.05:
        del data[start:]
