"""The C runtime in tests: building it, and driving it line by line."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow2onnx_runtime import Trainer, load_safetensors
from flow2onnx_runtime.digest import NO_DIGEST, sign

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "runtime" / "c"
CONFORMANCE = ROOT / "runtime" / "conformance"
MLP = CONFORMANCE / "mlp"
BUNDLES = ["lenet", "mixed", "mlp", "named", "transformer"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-Wshadow"]
BUNDLE, STATE, FEED, RUN, OPTIONS, NON_FINITE, FILE, MEMORY, RUNTIME, STOPPED = map(
    str, range(1, 11)
)


MARKS = [
    pytest.mark.skipif(
        sys.platform == "win32", reason="the C runtime is written for POSIX systems"
    ),
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler: no cc"),
    pytest.mark.skipif(not shutil.which("make"), reason="there is no make"),
]


def make(out: Path, *targets: str, sanitize: bool = False, single: bool = False) -> Path:
    """The folder in which the Makefile builds the targets; `single`: of all sources in one file."""
    command = ["make", "-C", str(SOURCE), f"OUT={out}", f"PYTHON={sys.executable}"]
    command += ["SANITIZE=1", "CFLAGS=-O1 -g"] * sanitize + ["SINGLE=1"] * single
    command += [f"{out}/{t}" for t in targets]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def sanitizers_work(folder: Path) -> bool:
    program = folder / "empty"
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    flags = ["-fsanitize=address,undefined", str(folder / "empty.c"), "-o", str(program)]
    found = subprocess.run(["cc", *flags], capture_output=True).returncode == 0
    return found and subprocess.run([program], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Command:
    """How a driver is started: the program with its arguments, and variables beside ours."""

    words: tuple[str | Path, ...]
    variables: dict[str, str] = field(default_factory=dict)

    def start(self, **pipes: Any) -> subprocess.Popen[str]:
        """The process, with pipes for what it reads and says."""
        return subprocess.Popen(
            self.words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=dict(os.environ, **self.variables), **pipes,
        )  # fmt: skip


class Driver:
    """A running driver; `say` sends a line and returns the words of the answer."""

    def __init__(self, driver: Path | Command, *prefix: str) -> None:
        """Start the program `driver` of a folder, or one of another language."""
        command = driver if isinstance(driver, Command) else Command((*prefix, driver / "driver"))
        self.process = command.start(bufsize=1, stderr=subprocess.PIPE)
        self.ok("threads", 1)

    def say(self, *words: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = self.process.stdout.readline()
        if not answer.endswith("\n"):
            pytest.fail(f"{words}: died\n{self.process.communicate(timeout=60)[1]}")
        return answer.rstrip("\n")

    def ok(self, *words: object) -> list[str]:
        answer = self.say(*words)
        assert answer.startswith("ok"), f"{words}: {answer}"
        return answer.split()[1:]

    def refused(self, status: str, *words: object) -> str:
        answer = self.say(*words)
        assert answer.startswith(f"error {status} "), f"{words}: {answer}"
        assert len(answer) > len("error 1 ") + 10, "an error says what is wrong"
        return answer

    def state(self, scratch: Path) -> dict[str, Any]:
        self.ok("state", scratch / "read.safetensors")
        return load_safetensors(scratch / "read.safetensors")[0]

    def close(self) -> None:
        """End it; the sanitizers' or valgrind's complaint, a leak say, is an error."""
        _, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, errors
        assert errors == ""


@dataclass
class Life:
    """Steps and saves, until it is killed at a random moment."""

    command: Command
    saved: Path

    def live(self, last: int, delay: float | None) -> bool:
        """Go on from what was saved; True if it came to the last step."""
        lines = [f"open {MLP / 'bundle'}", f"feeds {MLP / 'feeds.safetensors'}"]
        first = 0
        if self.saved.exists():
            first = int(load_safetensors(self.saved)[1]["steps"])
            lines.append(f"load {self.saved}")
        for step in range(first, last):
            lines += [f"step {step % 4}", f"save {self.saved}"]
        process = self.command.start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("threads 1\n" + "\n".join(lines) + "\n")
        process.stdin.close()
        for _ in range(len(lines) - 2 * (last - first) + 1):
            assert process.stdout.readline() == "ok\n"
        if delay is not None:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        out = process.stdout.read()
        process.stdout.close()
        assert "error" not in out
        return process.wait() == 0


def kill_during_saves(command: Command, kills: int, last: int, folder: Path) -> None:
    """Kill it so often; what is left is a whole state each time, and the end is that of no kill."""
    rng = random.Random(0)
    life = Life(command, folder / "s.safetensors")
    for _ in range(kills):
        if life.live(last, rng.uniform(0, 0.03)):
            last += 100  # it was faster
        if life.saved.exists():
            Trainer(MLP / "bundle").load(life.saved)
    life.live(last, None)
    undisturbed = Life(command, folder / "u.safetensors")
    undisturbed.live(last, None)
    assert life.saved.read_bytes() == undisturbed.saved.read_bytes()
    assert sorted(os.listdir(folder)) == ["s.safetensors", "u.safetensors"], "leftovers are gone"


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[n].dtype == v.dtype and found[n].tobytes() == v.tobytes() for n, v in wanted.items()
    )


def near(found: Any, wanted: Any, tolerance: float, what: str) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=what)


def damages(content: bytes, flips: int, cuts: int) -> Iterator[tuple[str, bytes]]:
    """Contents with one byte changed in each region, the end missing, or something appended."""
    rng = np.random.default_rng(len(content))
    for start, end in pairwise(np.linspace(0, len(content), flips + 1).astype(int)):
        place = int(rng.integers(start, max(end, start + 1)))
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        yield f"byte {place}", bytes(damaged)
    for size in np.linspace(0, len(content) - 1, cuts).astype(int):
        yield f"cut at {size}", content[:size]
    yield "appended", content + b"\0"


def rewrite(bundle: Path, change: Any) -> None:
    """Change the manifest, and give it the digest that it then deserves."""
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    manifest["digest"] = NO_DIGEST  # where it was: the first field
    text = json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(sign(text, text.index(NO_DIGEST.encode())))


def set_at(place: str, value: object) -> Any:
    """A function that sets the field "a/0/b" of a manifest to a value; an Ellipsis removes it."""

    def change(manifest: Any) -> None:
        *way, last = [int(w) if w.isdigit() else w for w in place.split("/")]
        for word in way:
            manifest = manifest[word]
        if value is ...:
            del manifest[last]
        else:
            manifest[last] = value

    return change


def words_of(action: dict[str, Any], saved: Path) -> list[object]:
    """An action of a trace as words for a driver."""
    kind = action["do"]
    if kind == "rate":
        return ["schedule"] if action["value"] is None else ["rate", action["value"]]
    if kind == "freeze":
        return ["freeze", *action["names"]]
    if kind in ("save", "load"):
        return [kind, saved]
    return [kind, action["batch"]] if "batch" in action else [kind]


def results_of(words: list[str], names: set[str]) -> dict[str, list[float]]:
    """The numbers of an answer by the name that stands before them."""
    found: dict[str, list[float]] = {}
    for word in words:
        if word in names:
            latest = found[word] = []
        else:
            latest.append(float(word))
    return found
