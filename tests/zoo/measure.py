"""Ten steps of exported networks beside ten where they were made, as a file and as a page.

`python -m tests.zoo.measure [PATTERN …]` measures the architectures whose names match, all
without a pattern, keeps what was measured of the others, and writes both. Needed are torch,
torchvision, transformers, onnxscript and skl2onnx (`pip install '.[exporters]' torchvision`);
TensorFlow and tf2onnx want an environment of their own, whose Python is named by ZOO_KERAS.
"""

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import astuple, dataclass, fields
from importlib import import_module
from pathlib import Path

import numpy as np

import flow2onnx as flow
from flow2onnx.errors import FlowError
from flow2onnx.export.files import write_bytes
from tests.zoo.origins import RATES, STEPS, ExportError, read

ROOT = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("measured.tsv")
PAGE = ROOT / "docs" / "models.md"
# Relative, over ten steps; of weights, by the largest change of any weight.
TOLERANCE = {"sgd": 1e-4, "adam": 1e-3, "weights": 1e-3}
CRASHED, FOLDED, NOT_EXPORTED = "crashed", "other weights", "no model"
FAMILIES = ("torch", "torchvision", "transformers", "keras", "sklearn")


@dataclass(frozen=True)
class Row:
    """The outcome of an architecture at one exporter: differences, or why there are none.

    `sgd` and `adam` are the worst differences of losses, `weights` that of weights after SGD.
    """

    architecture: str
    family: str
    exporter: str
    parameters: int
    sgd: float | None = None
    weights: float | None = None
    adam: float | None = None
    reason: str = ""

    @property
    def key(self):
        """The key that tells a row from the others."""
        return self.family, self.architecture, self.exporter

    @property
    def is_equal(self):
        """True if training is what it is at the origin."""
        found = {name: getattr(self, name) for name in TOLERANCE}
        return not self.reason and all(
            difference is None or difference <= TOLERANCE[name]
            for name, difference in found.items()
        )


def row(name, family, exporter, origin):
    """Train one exported model and compare."""
    if isinstance(origin, ExportError):
        return Row(name, family, exporter, 0, reason=f"{NOT_EXPORTED}: {origin}")
    head = name, family, exporter, origin.parameters
    try:
        found = {rule: train(origin, rule) for rule in origin.runs}
    except FlowError as error:
        return Row(*head, reason=" ".join(str(error).split())[:300])
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return Row(*head, reason=f"{CRASHED}: {type(error).__name__}: {text}")
    (sgd, weights, *_), adam = found["sgd"], found["adam"][0] if "adam" in found else None
    measured = Row(*head, sgd, weights, adam)
    reason = _folding(origin, found)
    # losses that are equal are so by equal weights, where the weights can be told to be theirs
    is_kept = not reason or (origin.is_named and measured.is_equal)
    return measured if is_kept else Row(*head, reason=reason)


def _folding(origin, found):
    """Changes that the exporter made to the parameters, where they are not there as they were."""
    lost = {n for _, _, missing, _ in found.values() for n in missing}
    size = found["sgd"][-1]
    if lost:
        return f"{FOLDED}: the exporter computed {len(lost)} of {len(origin.first)} into others"
    if not origin.is_named and size != origin.parameters:
        return f"{FOLDED}: the exporter made {size} numbers of them"
    return ""


def train(origin, rule):
    """The worst differences of losses and of weights, the parameters that are not there, and the
    number of numbers that are trained.
    """
    rate = RATES[rule] * (origin.scale if rule == "sgd" else 1.0)  # Adam divides by the size
    made = flow.make_trainable(
        origin.model, origin.loss, rule, lr=rate, output=origin.output,
        logits=origin.output is not None,
    )  # fmt: skip
    run, trainer = origin.runs[rule], made.trainer()
    names = {a: p.name for p in made.parameters for a in (p.name, *p.aliases)}
    before = trainer.state_dict()
    losses = [float(trainer.step(*origin.feeds, origin.labels)["loss"]) for _ in run.losses]
    after = trainer.state_dict()
    worst, change, missing = 0.0, 0.0, []
    for name, wanted in run.weights.items() if origin.is_named else ():
        first, own = origin.first[name], names.get(name, "")
        moved = float(np.abs(wanted - first).max(initial=0.0))
        layout = _layout(before[own], first) if own in before else None
        if layout is None:
            missing += [name] * bool(moved)
            continue
        change = max(change, moved)
        worst = max(worst, float(np.abs(layout(after[own]) - wanted).max(initial=0.0)))
    wanted = np.array(run.losses) / origin.scale
    gap = float(np.max(np.abs(np.array(losses) - wanted) / np.maximum(np.abs(wanted), 1e-12)))
    if not origin.is_named:
        missing = [n for n, w in origin.first.items() if not _has_content(before.values(), w)]
    size = sum(p.size for p in made.parameters if p.is_trained)
    return gap, worst / change if change else None, missing, size


def _layout(own, first):
    """A function to the layout of the origin's weight, as exporters transpose; None for none."""
    ways = (lambda w: w.reshape(first.shape), lambda w: w.T.reshape(first.shape))
    if own.size != first.size:
        return None
    return next((way for way in ways if np.allclose(way(own), first, 1e-6)), None)


def _has_content(tensors, first):
    """True if a tensor holds the numbers of a weight, in any order."""
    wanted = np.sort(first, axis=None)
    return any(t.size == first.size and np.allclose(np.sort(t, axis=None), wanted) for t in tensors)


def measure(patterns):
    """The rows of the architectures that match, as they are measured."""
    for family in FAMILIES:
        if family == "keras":
            yield from _keras(patterns)
            continue
        try:
            nets = import_module(f"tests.zoo.{family}_nets")
        except ImportError as error:
            print(f"{family}: left out, {error}", file=sys.stderr)
            continue
        for architecture in nets.ARCHITECTURES:
            if _is_asked(architecture.name, family, patterns):
                for exporter, origin in _origins(nets, architecture):
                    yield row(architecture.name, family, exporter, origin)


def _origins(nets, architecture):
    """The network at its exporters; none, and a word, where its library does not make it."""
    try:
        yield from nets.origins(architecture)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        print(f"{architecture.name}: left out, {type(error).__name__}: {text[0]}", file=sys.stderr)


def _keras(patterns):
    """The rows of Keras, whose steps are made in another environment."""
    python = os.environ.get("ZOO_KERAS")
    if python is None:
        print("keras: left out, ZOO_KERAS names no Python with TensorFlow", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "tests.zoo.keras_nets", folder]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        for found in sorted(Path(folder).iterdir()):
            if not _is_asked(found.name, "keras", patterns):
                continue
            error = found / "error.txt"
            origin = ExportError(error.read_text()) if error.exists() else read(found)
            yield row(found.name, "keras", "tf2onnx", origin)


def _is_asked(name, family, patterns):
    return not patterns or any(
        fnmatch.fnmatch(text, p) for p in patterns for text in (name, f"{family}/{name}")
    )


def load():
    """The rows in the file."""
    if not MEASURED.exists():
        return {}
    _, *lines = MEASURED.read_text().splitlines()
    found = [_parsed(line.split("\t")) for line in lines]
    return {r.key: r for r in found}


def ordered(rows):
    """The rows by family and name."""
    return sorted(rows.values(), key=lambda r: (FAMILIES.index(r.family), r.key))


def save(rows):
    """Write the rows to the file beside this module, and the page."""
    lines = ["\t".join(f.name for f in fields(Row))]
    lines += ["\t".join(_text(v) for v in astuple(r)) for r in ordered(rows)]
    write_bytes(MEASURED, "\n".join([*lines, ""]).encode())
    write_bytes(PAGE, page(ordered(rows)).encode())


def _text(value):
    if isinstance(value, float):
        return f"{value:.1e}"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "" if value is None else str(value))
    return " ".join(plain.split())


def _parsed(parts):
    name, family, exporter, parameters, *numbers, reason = parts
    differences = [float(n) if n else None for n in numbers]
    return Row(name, family, exporter, int(parameters), *differences, reason)


HEAD = """# Models that train as where they were made

Written by `python -m tests.zoo.measure`; do not edit.

Each network is exported with random weights, at reduced width and for a small batch, and trained
for {steps} steps by plain SGD and by Adam, here on ONNX Runtime and where it was made. The
differences are the worst of any step: of the losses, relative, at most {sgd:g} for SGD and {adam:g}
for Adam; of the weights after SGD, by the largest change of any weight, at most {tolerance:g}.
Exporters are torch's (`dynamo=True, optimize=False`), the same with its optimiser, its older one
(TorchScript), tf2onnx and skl2onnx.

Of {architectures} architectures, exported in {rows} ways, {equal} train equally and {wrong}
otherwise; {folded} have other weights, as the exporter folded parameters into one another, so that
there is nothing to compare with; {refused} are refused; of {unmade} the exporter made no model.

| architecture | of | exporter | parameters | losses, SGD | weights, SGD | losses, Adam | why not |
|---|---|---|---|---|---|---|---|
"""


def page(rows):
    """The page of the docs."""
    rows = list(rows)
    reasons = [r.reason.partition(":")[0] for r in rows]
    equal = sum(r.is_equal for r in rows)
    wrong = sum(not r.reason and not r.is_equal for r in rows)
    folded, unmade = reasons.count(FOLDED), reasons.count(NOT_EXPORTED)
    head = HEAD.format(
        steps=STEPS, sgd=TOLERANCE["sgd"], adam=TOLERANCE["adam"], tolerance=TOLERANCE["weights"],
        architectures=len({r.key[:2] for r in rows}), rows=len(rows), equal=equal, wrong=wrong,
        folded=folded, unmade=unmade, refused=len(rows) - equal - wrong - folded - unmade,
    )  # fmt: skip
    return head + "".join(_line(r) for r in rows)


def _line(r):
    parts = r.architecture, r.family, r.exporter, f"{r.parameters:,}", r.sgd, r.weights, r.adam
    cells = [*map(_text, parts), r.reason.replace("|", "\\|")]
    return f"| {' | '.join(cells)} |\n"


def main():
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names of architectures")
    patterns = parser.parse_args().patterns
    if not patterns:
        MEASURED.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters and learners warn of themselves
        for found in measure(patterns):
            print("\t".join(_text(v) for v in astuple(found)), flush=True)
            save(load() | {found.key: found})  # at once: another process may measure others


if __name__ == "__main__":
    main()
