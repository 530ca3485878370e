"""Processes that save to one path at once: every save succeeds, and a reader sees whole ones only.

Usage: python -m tests.reliability.racing_savers [--kind file|folder|model] [--saves N]

Prints the number of saves, of failed ones, of reads, and of reads that were not of one save.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flow2onnx_runtime import BundleError, replace_file, replace_folder

SIZE = 50_000
NAMES = "abcd"


def save_file(path: Path, number: int) -> None:
    """Make `path` a file of one byte's value."""

    def write(file: Any) -> None:
        for _ in range(4):
            file.write(bytes([number % 251]) * (SIZE // 4))

    replace_file(path, write)


def save_folder(path: Path, number: int) -> None:
    """Make `path` a folder of four files of one byte's value."""

    def fill(folder: Path) -> None:
        for name in NAMES:
            (folder / name).write_bytes(bytes([number % 251]) * (SIZE // 4))

    replace_folder(path, fill, overwrite=True)


def save_model(path: Path, number: int) -> None:
    """Make `path` a model of one number, in two files."""
    from flow2onnx.export.files import publish, staging, write_bytes

    targets = [path.with_name(f"{path.name}.data"), path]
    with staging(path) as folder:
        for target in targets:
            write_bytes(Path(folder, target.name), bytes([number % 251]) * (SIZE // 2))
        publish(Path(folder), targets)


def file_content(path: Path) -> bytes:
    """The bytes that a reader finds in the file."""
    return path.read_bytes()


def folder_content(path: Path) -> bytes:
    """The bytes that a reader finds in the folder, opened once."""
    folder = os.open(path, os.O_RDONLY)
    try:
        parts = []
        for name in NAMES:
            descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                parts.append(file.read())
        return b"".join(parts)
    finally:
        os.close(folder)


def model_content(path: Path) -> bytes:
    """The bytes that a reader finds in the two files of a model."""
    return path.read_bytes() + path.with_name(f"{path.name}.data").read_bytes()


KINDS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], bytes]]] = {
    "file": (save_file, file_content),
    "folder": (save_folder, folder_content),
    "model": (save_model, model_content),
}


def work(kind: str, path: Path, first: int, saves: int, errors: Any) -> None:
    """Save so often; put what fails into the queue."""
    for number in range(first, first + saves):
        try:
            KINDS[kind][0](path, number)
        except (OSError, BundleError) as error:
            errors.put(f"{type(error).__name__}: {error}")


def race(kind: str, saves: int, processes: int = 3) -> dict[str, Any]:
    """The counts of a race of so many saves, in all."""
    context = multiprocessing.get_context("spawn")
    errors, each = context.Queue(), saves // processes
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "target")
        KINDS[kind][0](path, 0)
        workers = [
            context.Process(target=work, args=(kind, path, i * each, each, errors))
            for i in range(processes)
        ]
        for worker in workers:
            worker.start()
        reads, mixed = read_meanwhile(kind, path, workers)
        for worker in workers:
            worker.join()
        failed = []
        while not errors.empty():
            failed.append(errors.get())
        left = sorted(set(os.listdir(root)) - {"target", "target.data"})
        return {
            "kind": kind, "saves": each * processes, "failed": len(failed), "reads": reads,
            "mixed reads": mixed, "left over": len(left), "first failures": failed[:3],
            "last is whole": len(set(KINDS[kind][1](path))) == 1,
        }  # fmt: skip


def read_meanwhile(kind: str, path: Path, workers: list[Any]) -> tuple[int, int]:
    """The numbers of reads while the workers save, and of those of more than one save."""
    reads = mixed = 0
    while any(worker.is_alive() for worker in workers):
        try:
            content = KINDS[kind][1](path)
        except FileNotFoundError:  # of a folder that was replaced meanwhile, or a model's two files
            time.sleep(0.001)
            continue
        reads, mixed = reads + 1, mixed + (len(set(content)) != 1 or len(content) != SIZE)
        time.sleep(0.002)
    return reads, mixed


def main() -> int:
    """Race; 1 if a save failed or a read was of more than one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="file")
    parser.add_argument("--saves", type=int, default=1500)
    arguments = parser.parse_args()
    found = race(arguments.kind, arguments.saves)
    print(json.dumps(found))
    return bool(found["failed"] or not found["last is whole"])


if __name__ == "__main__":
    sys.exit(main())
