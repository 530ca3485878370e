"""The README as a newcomer pastes it: python -m tests.readme [--all] [--into FOLDER].

Copies the repository's files, makes an empty environment, and runs every block in order: commands
in bash, Python in one file, which grows from block to block. A block whose first line says what it
needs is left out; one whose first line says how long it takes runs with --all. The time of each
block is printed, and the size of the environment.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "*.egg-info", "node_modules", "target", "__pycache__", ".*_cache"
)
PORT = "8000"


class Block(NamedTuple):
    """A block of the README: its language and text, and what its first line says of it."""

    language: str
    text: str

    @property
    def mark(self) -> Literal["", "needs", "takes"]:
        """Why it is left out: it needs something, or takes long."""
        found = re.match(r"# (needs|takes) ", self.text)
        return "" if found is None else "needs" if found[1] == "needs" else "takes"

    @property
    def title(self) -> str:
        """Its first line that is no comment."""
        return next(line for line in self.text.splitlines() if not line.startswith("#"))


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document in order."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, content) for language, content in found]


def scripts(found: list[Block]) -> Iterator[tuple[Block, str]]:
    """Each block with the Python of all blocks up to it, which is one file by then."""
    program = ""
    for block in found:
        if block.language == "python":
            program += block.text
        yield block, program


def main() -> None:
    """Run the blocks; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="also what takes long")
    parser.add_argument("--into", type=Path, help="an empty folder, kept; else a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.into or Path(temporary)
        run(folder / "flow2onnx", folder / "environment", takes_long=asked.all)


def run(copy: Path, environment: Path, *, takes_long: bool) -> None:
    """Run the blocks in a copy of the repository, with nothing installed but what they install."""
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    venv.create(environment, with_pip=True)
    begun = time.perf_counter()
    for block, program in scripts(blocks((copy / "README.md").read_text(encoding="utf-8"))):
        if block.mark == "needs" or (block.mark == "takes" and not takes_long):
            print(f"     left out: {block.text.splitlines()[0]}", flush=True)
            continue
        started = time.perf_counter()
        (copy / "train.py").write_text(program, encoding="utf-8")
        run_block(block, copy, environment)
        print(f"{time.perf_counter() - started:6.1f} s  {block.title}", flush=True)
    size = sum(f.stat().st_size for f in environment.rglob("*") if f.is_file())
    print(f"{time.perf_counter() - begun:6.1f} s in all; the environment has {size / 1e6:.0f} MB")


def run_block(block: Block, copy: Path, environment: Path) -> str:
    """What a block prints; a failure of it ends this program."""
    command = ["python", "train.py"]
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.text.replace(PORT, free_port())]
    done = subprocess.run(
        command, cwd=copy, env=variables(environment), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{block.text}\n{done.stdout}\nfailed with {done.returncode}")
    return done.stdout


def variables(environment: Path) -> dict[str, str]:
    """The variables of a shell in which an environment is active."""
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    own = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return own | {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "2"}


def free_port() -> str:
    """A port that nobody listens on, in place of the README's, which somebody may."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


if __name__ == "__main__":
    main()
