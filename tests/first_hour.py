"""A newcomer's first hour, recorded: python -m tests.first_hour [--out docs/first_hour.md].

Clones the last commit, makes an empty environment, and follows the README: every block in order,
but for those that need what the README does not bring. What is served is looked at in Chromium.
The page that is written has the time of each block, what it printed, and the pictures.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from tests.readme import PORT, ROOT, Block, blocks, free_port, run_block, scripts, variables

PAGE, PICTURES = ROOT / "docs" / "first_hour.md", "pictures/first_hour"
BROWSER = "examples.browser"  # in the block of the page that learns
LINES, WIDTH = 14, 140  # of an output that are kept
_OWN = re.compile(r"^npm (warn|notice)|://(?!localhost|127\.)")  # lines of this machine's settings
SHOW = Block("sh", "flow2onnx show bundle -o bundle.html\n")
SERVE = "flow2onnx-serve repository --port"
HEAD = """# A first hour

<!-- Written by `make first-hour`. -->

What a newcomer does with the [README](../README.md) and nothing else: a fresh clone, an empty
environment, every block of it in order, typed by a program; left out is what needs a language
model. pip, which lists what it installs, is told to be quiet.

{machine}
"""


@dataclass(frozen=True)
class Step:
    """What was done, how long it took in seconds, what it printed, and pictures of it."""

    title: str
    block: Block
    seconds: float
    output: str
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Desk:
    """Where the newcomer works: the clone, its environment, and the folder for pictures."""

    copy: Path
    environment: Path
    pictures: Path

    def look(self, kind: str, address: str) -> tuple[str, ...]:
        """Use a page in Chromium; returns the names of the pictures that this made."""
        here = self.copy / "runtime" / "js"  # where playwright-core is looked for
        for source in (ROOT / "tests/first_hour.mjs", ROOT / "runtime/js/test/browser/strokes.js"):
            shutil.copyfile(source, here / source.name)
        command = ["node", "first_hour.mjs", kind, address, str(self.pictures)]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300)
        if done.returncode:
            sys.exit(f"{kind} at {address}\n{done.stdout}\n{done.stderr}")
        return tuple(done.stdout.split())


def main() -> None:
    """Record, then write the page and its pictures."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; pictures go beside it")
    asked = parser.parse_args()
    for tool in ("git", "npm", "node"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: install it first")
    os.environ.setdefault("CHROMIUM", shutil.which("chromium") or "")
    if not os.environ["CHROMIUM"]:
        sys.exit("Chromium is missing: install it, or set CHROMIUM to its path")
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder, "flow2onnx"), Path(folder, "environment"), Path(folder, "seen"))
        desk.pictures.mkdir()
        steps = list(record(desk))
        size = sum(f.stat().st_size for f in desk.environment.rglob("*") if f.is_file())
        shutil.rmtree(asked.out.parent / PICTURES, ignore_errors=True)
        shutil.copytree(desk.pictures, asked.out.parent / PICTURES)
        asked.out.write_text(page(steps, size), encoding="utf-8")


def record(desk: Desk) -> Iterator[Step]:
    """Every step, told as it ends."""
    for step in _steps(desk):
        print(f"{step.seconds:6.1f} s  {step.title}", flush=True)
        yield step


def _steps(desk: Desk) -> Iterator[Step]:
    clone = Block("sh", "git clone flow2onnx && cd flow2onnx\npython3 -m venv ../environment\n"
                        ". ../environment/bin/activate\n")  # fmt: skip
    yield _timed("clone, and an empty environment", clone, lambda: _begin(desk))
    readme = (desk.copy / "README.md").read_text(encoding="utf-8")
    for block, program in scripts(blocks(readme)):
        if block.mark == "needs" and BROWSER not in block.text:
            continue
        (desk.copy / "train.py").write_text(program, encoding="utf-8")
        if BROWSER in block.text:
            yield from _page_that_learns(desk, block)
            continue
        step = _timed(_title(block, program), block, lambda b=block: run_block(b, *_places(desk)))
        yield _with_curve(desk, step) if block.title.startswith("make demo") else step
        if SERVE in block.text:
            yield _served(desk)
    yield _shown(desk)


def _title(block: Block, program: str) -> str:
    """The command of a block; Python is the file that the README lets grow."""
    if block.language == "sh":
        return block.title.partition("  #")[0].strip()
    return f"train.py, {len(program.splitlines())} lines by now"


def _places(desk: Desk) -> tuple[Path, Path]:
    return desk.copy, desk.environment


def _timed(title: str, block: Block, act: Callable[[], str]) -> Step:
    begun = time.perf_counter()
    output = act()
    return Step(title, block, time.perf_counter() - begun, output)


def _begin(desk: Desk) -> str:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(desk.copy)], check=True)
    venv.create(desk.environment, with_pip=True)
    return ""


def _with_curve(desk: Desk, step: Step) -> Step:
    shutil.copyfile(desk.copy / "demo" / "mlp_loss.png", desk.pictures / "loss.png")
    return Step(step.title, step.block, step.seconds, step.output, ("loss.png",))


@contextmanager
def running(desk: Desk, command: list[str], until: str) -> Iterator[str]:
    """A command that goes on, once it has printed a line with this text; yields what it printed."""
    process = subprocess.Popen(
        command, cwd=desk.copy, env=variables(desk.environment) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None, "it is a pipe"
    said = ""
    try:
        while until not in said:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{' '.join(command)}\n{said}\nended")
            said += line
        yield said
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _page_that_learns(desk: Desk, block: Block) -> Iterator[Step]:
    begun = time.perf_counter()
    command = ["python", "-m", "examples.browser", "--port", free_port()]
    with running(desk, command, "open http") as said:
        built = time.perf_counter()
        yield Step(_title(block, ""), block, built - begun, said)
        address = re.findall(r"http://\S+", said)[-1]
        pictures = desk.look("digits", address)
        title = "draw a one and a house in the page, say that the house is a 4"
        yield Step(title, Block("", ""), time.perf_counter() - built, "", pictures)


def _served(desk: Desk) -> Step:
    """The server of the README's block once more, which ends it: its pages, and their examples."""
    begun = time.perf_counter()
    port = free_port()
    with running(desk, ["flow2onnx-serve", "repository", "--port", port], '"listening"'):
        address = f"http://localhost:{port}/"
        with urlopen(Request(address)) as answer:
            example = json.load(answer)["models"][0]["example"]
        command = ["bash", "-euo", "pipefail", "-c", example["curl"]]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        pictures = desk.look("server", address)
    block = Block("sh", f"flow2onnx-serve repository &\n{example['curl'].replace(port, PORT)}\n")
    title = "open the server's pages, and paste the example of the first"
    return Step(title, block, time.perf_counter() - begun, done.stdout + "\n", pictures)


def _shown(desk: Desk) -> Step:
    step = _timed(SHOW.title, SHOW, lambda: run_block(SHOW, *_places(desk)))
    pictures = desk.look("show", (desk.copy / "bundle.html").as_uri())
    return Step(step.title, step.block, step.seconds, step.output, pictures)


def page(steps: list[Step], size: int) -> str:
    """The record in Markdown."""
    rows, passed = [], 0.0
    for step in steps:
        passed += step.seconds
        rows.append(f"| {step.title} | {step.seconds:.1f} s | {passed / 60:.1f} min |")
    table = "\n".join(["| step | time | since the beginning |", "|---|---:|---:|", *rows])
    end = f"The environment has {size / 1e6:.0f} MB then."
    parts = [HEAD.format(machine=_machine()), f"{table}\n\n{end}\n"]
    return "\n".join([*parts, *map(_section, enumerate(steps, 1))])


def _machine() -> str:
    """The machine in words, and how busy it was with other things besides."""
    cores, python = len(os.sched_getaffinity(0)), platform.python_version()
    load = os.getloadavg()[2]
    return (
        f"The machine has {cores} cores and Python {python}. {load:.0f} processes wanted them\n"
        "at once on average: an idle machine takes a fraction of these times."
    )


def _section(numbered: tuple[int, Step]) -> str:
    number, step = numbered
    lines = [f"## {number}. {step.title}\n"]
    if step.block.text:
        lines.append(f"```{step.block.language}\n{step.block.text}```\n")
    if step.output.strip():
        lines.append(f"```text\n{_shortened(step.output)}\n```\n")
    lines += [f"![{name.removesuffix('.png').replace('_', ' ')}]({PICTURES}/{name})\n"
              for name in step.pictures]  # fmt: skip
    return "\n".join(lines)


def _shortened(output: str) -> str:
    """The last lines of an output, without what is of this machine alone."""
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/[^/\s]+/", "~/", output)
    lines = [_line(line) for line in text.strip().splitlines() if not _OWN.search(line)]
    return "\n".join((["…"] if len(lines) > LINES else []) + lines[-LINES:])


def _line(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


if __name__ == "__main__":
    main()
