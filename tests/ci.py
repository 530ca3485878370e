"""The steps of continuous integration, as many side by side as there are processors.

``python3 -m tests.ci [--without STEP ...]``, after `.ci/run` has installed the tools; needs no
package. Environments are installed one at a time while tests run. What a step writes is printed
when it has ended, its last line each minute before, and a table of all at the end, with the last
lines of those that failed. The exit status is that of the first step that failed; the others are
run all the same. Where an environment cannot be installed, that is said and its tests are left out.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Never

__all__ = ["STEPS", "Result", "Step", "main", "run"]

ROOT = Path(__file__).parents[1]
_POLL = 0.05  # seconds between looks at what runs
_SIGN = 60.0  # seconds between signs of life
_LINE = 160  # bytes of a line that are shown
_REPEATED = 80  # lines of a failed step that stand below the table again


@dataclass(frozen=True)
class Step:
    """A command, the steps that must have ended well before it, and what may run beside it."""

    name: str
    command: Sequence[str]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # these must have ended, well or not
    takes_all: bool = False  # keeps every processor busy by itself
    is_install: bool = False  # of an environment: beside anything, one at a time
    lack: str = ""  # what is missing where it fails; without words its failure is an error


@dataclass(frozen=True)
class Result:
    """How a step ended; one that was left out has no exit status, but a reason."""

    step: Step
    seconds: float = 0.0
    status: int | None = None
    reason: str = ""
    last_lines: str = ""

    @property
    def is_error(self) -> bool:
        """True where it failed, and nothing says that it may."""
        return bool(self.status) and not self.step.lack

    def __str__(self) -> str:
        """A line of the table."""
        if self.status is None:
            end = f"left out: {self.reason}"
        elif self.status == 0:
            end = "ok"
        else:
            end = self.step.lack or f"FAILED with exit status {self.status}"
        return f"{self.step.name:20} {self.seconds:6.0f} s  {end}"


def _packages(name: str, lack: str, *others: str) -> Step:
    """An environment, made when the fast tests have ended, which have all processors."""
    targets = [f".venv/{environment}/ready" for environment in (name, *others)]
    return Step(f"{name}-packages", ("make", *targets), ("environment",), ("test",),
                is_install=True, lack=lack)  # fmt: skip


def _tests(
    name: str,
    *needs: str,
    after: tuple[str, ...] = (),
    settings: Sequence[str] = (),
    takes_all: bool = False,
) -> Step:
    return Step(name, ("make", name, *settings), ("environment", *needs), after, takes_all)


_KOTLIN = ("npm", "install", "--silent", "--no-save", "--prefix", ".venv/kotlin",
           "kotlin-compiler@2.4.20")  # fmt: skip

# In the order in which they begin: none overtakes one that only waits for a processor.
STEPS = (
    Step("environment", ("make", ".venv/cpu/ready"), is_install=True),
    Step("node-packages", ("make", "tools"), lack="the Node packages could not be installed"),
    Step("kotlin", _KOTLIN, lack="the Kotlin compiler could not be installed"),
    Step("triton", ("make", "triton"), ("environment",),
         lack="the real Triton server could not be installed"),
    _tests("check"),  # while packages come: make test has its cache
    _tests("collect"),
    _tests("test", after=("node-packages", "kotlin", "triton", "check", "collect"), takes_all=True),
    _packages("standin", "onnxruntime-gpu could not be installed: no stand-in for CUDA"),
    _packages("docs", "Sphinx could not be installed: no pages are built"),
    _packages("audit", ""),
    _packages("oldest", ""),
    _packages("genai", "onnxruntime-genai could not be installed: no adapter is served by it"),
    _packages("editors", "pyright could not be installed: no editor is asked"),
    _packages("notebooks", "ipykernel or nbclient could not be installed: no notebook is run"),
    _packages("lowest", "the lowest versions could not be installed: only the newest are tested"),
    _packages("ranks", "torch or MPI could not be installed: no ranks are started", "mpich"),
    _tests("runtimes", after=("node-packages", "kotlin"), settings=("SLOW=1",), takes_all=True),
    _tests("ranks", "ranks-packages", takes_all=True),
    _tests("analyse"),
    _tests("fuzz", settings=("MINUTES=2",)),
    _tests("test-gpu", "standin-packages"),
    _tests("sanitize"),
    _tests("docs", "docs-packages"),
    _tests("test-lowest", "lowest-packages"),
    _tests("editors", "editors-packages"),
    _tests("genai", "genai-packages"),
    _tests("notebooks", "notebooks-packages"),
    _tests("test-oldest", "oldest-packages"),
    _tests("audit", "audit-packages"),
)  # fmt: skip


@dataclass
class _Running:
    """A step that has begun, and the file that it writes to."""

    step: Step
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    begin: float

    @classmethod
    def start(cls, step: Step) -> "_Running":
        """Begin it as the leader of a group of processes, which can be ended together."""
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been printed
        process = subprocess.Popen(step.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        return cls(step, process, output, time.monotonic())

    def result(self) -> Result:
        """How it ended, what it wrote having been printed."""
        self.output.seek(0)
        lines = self.output.read().decode(errors="replace").splitlines()[-_REPEATED:]
        result = Result(self.step, time.monotonic() - self.begin, self.process.returncode,
                        last_lines="\n".join(lines))  # fmt: skip
        self.print_output(str(result))
        return result

    def print_sign(self) -> None:
        """Print how long it has run, and the last of its lines."""
        written = os.fstat(self.output.fileno()).st_size
        read = os.pread(self.output.fileno(), _LINE, max(written - _LINE, 0))
        last = (read.decode(errors="replace").strip().splitlines() or [""])[-1]
        print(f"      {self.step.name} {time.monotonic() - self.begin:.0f} s: {last}", flush=True)

    def print_output(self, title: str) -> None:
        """Print all that it wrote so far, under a title."""
        self.output.seek(0)
        print(f"\n===== {title}", flush=True)
        sys.stdout.buffer.write(self.output.read())
        sys.stdout.flush()
        self.output.close()

    def stop(self) -> None:
        """End it with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run(steps: Iterable[Step], processors: int, without: Collection[str] = ()) -> list[Result]:
    """The results of all steps, in the order in which they ended; those `without` come first."""
    given, running = list(steps), list[_Running]()
    ended = {s.name: Result(s, reason="--without") for s in given if s.name in without}
    waiting = [step for step in given if step.name not in ended]
    sign = time.monotonic() + _SIGN
    try:
        while waiting or running:
            for one in [r for r in running if r.process.poll() is not None]:
                ended[one.step.name] = one.result()
                running.remove(one)
            for step in list(waiting):
                if reason := _obstacle(step, ended):
                    ended[step.name] = Result(step, reason=reason)
                    waiting.remove(step)
            while begun := _next(waiting, running, ended, processors):
                print(f"----- {begun.name} begins", flush=True)
                running.append(_Running.start(begun))
                waiting.remove(begun)
            if time.monotonic() > sign:
                sign += _SIGN
                for one in running:
                    one.print_sign()
            time.sleep(_POLL)
    finally:
        for one in running:
            one.stop()
        for one in running:
            one.print_output(f"{one.step.name} was interrupted")
    return list(ended.values())


def _obstacle(step: Step, ended: Mapping[str, Result]) -> str:
    """Why a step can never begin, if that is known by now."""
    failed = (name for name in step.needs if name in ended and ended[name].status != 0)
    return next((ended[name].step.lack or f"no {name}" for name in failed), "")


def _next(
    waiting: Sequence[Step],
    running: Sequence[_Running],
    ended: Collection[str],
    processors: int,
) -> Step | None:
    """The first step that may begin now, if any."""
    ready = [step for step in waiting if {*step.needs, *step.after}.issubset(ended)]
    begun = [one.step for one in running]
    free = processors - sum(_processors(step, processors) for step in begun)
    install = next((step for step in ready if step.is_install), None)
    if install and not any(step.is_install for step in begun):
        return install
    step = next((step for step in ready if not step.is_install), None)
    return step if step and _processors(step, processors) <= free else None


def _processors(step: Step, processors: int) -> int:
    """The processors that a step keeps from others."""
    if step.is_install:
        return 0
    return processors if step.takes_all else 1


def main(arguments: Sequence[str] | None = None, steps: Sequence[Step] = STEPS) -> int:
    """Run all steps but those left out, and print the table."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.ci", description=__doc__)
    parser.add_argument("--without", nargs="*", default=[], metavar="STEP",
                        choices=[step.name for step in steps])  # fmt: skip
    without = parser.parse_args(arguments).without
    before, begin = signal.signal(signal.SIGTERM, _end), time.monotonic()
    try:
        results = run(steps, os.cpu_count() or 1, without)
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"\n===== {time.monotonic() - begin:.0f} s in all", *results, sep="\n", flush=True)
    for result in results:
        if result.is_error:
            print(f"\n===== the end of {result.step.name}", result.last_lines, sep="\n", flush=True)
    return next((result.status or 1 for result in results if result.is_error), 0)


def _end(number: int, frame: FrameType | None) -> Never:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
