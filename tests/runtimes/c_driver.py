"""What the tests of the C runtime share: building it, and driving it line by line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow2onnx_runtime import load_safetensors
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


class Driver:
    """A running driver; `say` sends a line and returns the words of the answer."""

    def __init__(self, folder: Path, *prefix: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, folder / "driver"], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
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
    """What sets the field at "a/0/b" of a manifest to a value; an Ellipsis removes it."""

    def change(manifest: Any) -> None:
        *way, last = [int(w) if w.isdigit() else w for w in place.split("/")]
        for word in way:
            manifest = manifest[word]
        if value is ...:
            del manifest[last]
        else:
            manifest[last] = value

    return change
