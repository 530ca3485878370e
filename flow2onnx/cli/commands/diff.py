"""`flow2onnx diff`: what differs between two models."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import click

from flow2onnx.api.job import JobFunction
from flow2onnx.cli.failures import report_errors, traceback_option
from flow2onnx.cli.graphs import is_place
from flow2onnx.cli.options import json_option, release_option
from flow2onnx.cli.script import opened_job
from flow2onnx.cli.show import heading, note, print_json, print_table, working
from flow2onnx.export import GraphDifference, compare_models

__all__ = ["diff"]

_TROUBLE = 2  # the exit code of diff where it cannot compare


@click.command(epilog="""\b
Examples:
  flow2onnx diff before.onnx after.onnx
  flow2onnx diff first/ second/ --tolerance 1e-5
  flow2onnx diff train.py:predict_job deployed.onnx --json""")  # fmt: skip
@click.argument("first")
@click.argument("second")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SHARE",
    help="A share of the largest number of a tensor that is no difference; 0.",
)
@json_option
@release_option
@traceback_option
def diff(first: str, second: str, tolerance: float, as_json: bool, release: str | None) -> None:
    """Tell what differs between two models: nodes, shapes, weights, results on random numbers.

    Each is an .onnx file, a bundle, script.py:job or package.module:job; a job has its first
    weights. The exit code is 0 if nothing differs, 1 if something does, and 2 in trouble.
    """
    try:
        with report_errors(), ExitStack() as places:
            paths = [places.enter_context(_model_place(t, release)) for t in (first, second)]
            with working("Comparing"):
                found = compare_models(paths[0], paths[1], tolerance)
    except SystemExit:
        raise SystemExit(_TROUBLE) from None
    found = replace(found, first=first, second=second)
    print_json(found.as_dict()) if as_json else _print(found)
    sys.exit(0 if found.is_empty else 1)


@contextmanager
def _model_place(target: str, release: str | None) -> Iterator[Path]:
    """The file or folder of a target; a job is exported to a temporary one."""
    if is_place(target):
        yield Path(target)
        return
    with tempfile.TemporaryDirectory(prefix="flow2onnx-") as folder:
        with (
            _forget_jobs(),
            opened_job(target, (), release) as job,
            working(f"Compiling {target}"),
        ):
            name = job.spec.name if job.spec.kind == "train" else f"{job.spec.name}.onnx"
            job.export(Path(folder) / name, verify=False)
        yield Path(folder) / name


@contextmanager
def _forget_jobs() -> Iterator[None]:
    """Forget modules with jobs that the body imports: the next target has a session of its own."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            values = list(vars(sys.modules[name]).values())
            if any(isinstance(value, JobFunction) for value in values):
                del sys.modules[name]


def _print(found: GraphDifference) -> None:
    verdict = "the same" if found.is_empty else f"{len(found.changes)} differences"
    heading(f"{found.first}, {found.second}", verdict)
    for kind, changes in groupby(found.changes, key=lambda c: c.kind):
        note("")
        print_table((kind, "difference"), [(c.name, c.change) for c in changes])
    same = [f"{n:,} {kind}{'s' * (n != 1)}" for kind, n in found.same.items() if n]
    note(f"\nthe same: {', '.join(same) or 'nothing'}")
    for text in found.notes:
        note(text)
