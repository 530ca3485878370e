"""Forks a process that saves until it is killed, for each line ``FORMAT FIRST ROOT`` of its input.

The output is the process id, the number of each finished save, and in the end the wait status.
Forking saves the time of starting Python anew.
"""

import os
import sys
from pathlib import Path

import numpy as np

from flow2onnx.checkpoint.store import save


def report(line: object) -> None:
    """Write a line in one system call, so that a kill cannot leave half of it."""
    os.write(1, f"{line}\n".encode())


def save_for_ever(form: str, number: int, root: Path) -> None:
    """Save numbers from `number` on, every element of every variable being the number."""
    report(os.getpid())
    while True:
        values = {f"w{i}": np.full((i * 1000, 3), number, np.float32) for i in range(4)}
        name = f"snapshot_{number:09}" if form == "folder" else "model.safetensors"
        save(root / name, values)
        report(number)
        number += 1


def main() -> None:
    """Serve the requests."""
    for request in sys.stdin:
        form, first, root = request.rstrip("\n").split(" ", 2)
        child = os.fork()
        if not child:
            save_for_ever(form, int(first), Path(root))
        report(f"status {os.waitpid(child, 0)[1]}")


if __name__ == "__main__":
    main()
