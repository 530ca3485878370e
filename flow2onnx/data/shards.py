"""Part files: the records of a folder in batches, for ever, in order or shuffled."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np

from flow2onnx.data.ofrecord import Record, read_records
from flow2onnx.errors import DataError

__all__ = ["Parts", "batches", "part_files", "part_name"]


def part_name(index: int, prefix: str = "part-", suffix_length: int = -1) -> str:
    """The name of a part: the prefix, and the index filled with zeros to the length."""
    return prefix + str(index).zfill(max(suffix_length, 0))


def part_files(folder: str | os.PathLike[str], prefix: str = "part-") -> list[Path]:
    """The parts that are in a folder, by index."""
    numbered = [(p.name[len(prefix) :], p) for p in Path(folder).glob(f"{prefix}*")]
    return [p for digits, p in sorted(numbered, key=_index) if digits.isdigit() and p.is_file()]


def _index(part: tuple[str, Path]) -> tuple[int, str]:
    digits = part[0]
    return (int(digits) if digits.isdigit() else -1), digits


@dataclass(frozen=True)
class Parts:
    """The parts 0 … count-1 of a folder, and the order in which their records come.

    `shuffles_parts` changes the order of the parts after each epoch, the first being in order;
    `buffer` > 0 swaps each record read with a random one of that many held back.
    """

    folder: str
    count: int
    _: KW_ONLY
    prefix: str = "part-"
    suffix_length: int = -1
    shuffles_parts: bool = False
    buffer: int = 0
    seed: int = 0

    def paths(self) -> list[str]:
        """The files, in order."""
        names = [part_name(i, self.prefix, self.suffix_length) for i in range(self.count)]
        return [os.path.join(self.folder, name) for name in names]

    def epoch(self, number: int) -> Iterator[Record]:
        """The records of one epoch, before the buffer shuffles them."""
        paths = self.paths()
        if self.shuffles_parts and number:
            order = np.random.default_rng([self.seed, number]).permutation(len(paths))
            paths = [paths[i] for i in order]
        for path in paths:
            yield from read_records(path)

    def records(self) -> Iterator[Record]:
        """All records, epoch after epoch, for ever."""
        endless = self._endless()
        return self._shuffle(endless) if self.buffer else endless

    def _endless(self) -> Iterator[Record]:
        for number in itertools.count():
            is_empty = True
            for record in self.epoch(number):
                is_empty = False
                yield record
            if is_empty:
                raise DataError(
                    f"the {self.count} part files hold no record",
                    place=self.folder,
                    hint="`flow2onnx data show` lists what is in a folder",
                )

    def _shuffle(self, records: Iterator[Record]) -> Iterator[Record]:
        random = np.random.default_rng([self.seed, 1 << 32])
        held = list(itertools.islice(records, self.buffer))
        for record in records:
            place = int(random.integers(len(held)))
            held[place], record = record, held[place]
            yield record


def batches(parts: Parts, size: int) -> Iterator[tuple[list[Record]]]:
    """The records in batches; a batch that an epoch ends in goes on with the next."""
    records = parts.records()
    while True:
        yield (list(itertools.islice(records, size)),)
