"""`flow2onnx export`: a job of a script as ONNX files."""

import logging
import sys
from pathlib import Path
from typing import Any

import click

from flow2onnx.api.job import JobFunction
from flow2onnx.api.models import get, load_variables
from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import (
    check_together,
    details_option,
    json_option,
    key_values,
    release_option,
)
from flow2onnx.cli.reports import print_files, print_report
from flow2onnx.cli.script import opened_job
from flow2onnx.cli.serving_options import serving_arguments, serving_options
from flow2onnx.cli.show import heading, note, print_json, working
from flow2onnx.engine import SESSION, current_session
from flow2onnx.errors import CheckpointError
from flow2onnx.export import MisplacedOptionError, Report, describe, export_triton
from flow2onnx.export import export as export_job

__all__ = ["export"]

_log = logging.getLogger("flow2onnx.cli")


@click.command(epilog="""\b
Examples:
  flow2onnx export train.py:predict_job -o mlp.onnx --dynamic-batch
  flow2onnx export train.py:train_job --predict predict_job -o mlp/
  flow2onnx export train.py:train_job --predict predict_job --on-device bundle/ --ort
  flow2onnx export train.py:predict_job --triton models/ --labels labels.txt
  flow2onnx export train.py:predict_job -o net.onnx --dynamic-batch --precision int8 \\
      --calibration some.npz --samples test.npz --sample-labels test_labels.npy
  flow2onnx export train.py:predict_job -o net.onnx \\
      --preprocess "images:dtype=uint8;layout=NHWC->NCHW;scale=1/255"
  flow2onnx export models.mlp:predict_job -o mlp.onnx --checkpoint snapshots/last
  flow2onnx export train.py:predict_job -o mlp.onnx -- --hidden-units 256""")  # fmt: skip
@click.argument("target", metavar="SCRIPT.PY:JOB")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="A name in .onnx for a predict job; a folder for a train job.",
)
@click.option(
    "--on-device",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="In place of -o: a train job's folder to ship to devices, with a README.",
)
@click.option(
    "--triton",
    type=click.Path(path_type=Path),
    metavar="REPO",
    help="In place of -o: a predict job as the next version in a repository, its batch open.",
)
@click.option("--name", metavar="NAME", help="The model's name in the repository; the job's.")
@click.option(
    "--labels",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="The classes' names for the repository, one a line.",
)
@click.option(
    "--max-batch", type=click.IntRange(1), metavar="N", help="Rows a server may combine; 32."
)
@click.option(
    "--delay-ms", type=click.FloatRange(0), metavar="MS", help="How long requests wait for it; 0."
)
@click.option("--accumulate", is_flag=True, help="With models that accumulate gradients.")
@click.option("--ort", "ort_format", is_flag=True, help="With .ort files, for reduced builds.")
@click.option(
    "--predict",
    multiple=True,
    metavar="JOB",
    help="A predict job to put into a train job's folder; may be repeated.",
)
@click.option("--dynamic-batch", is_flag=True, help="Leave the batch size of a predict job open.")
@click.option(
    "--batch", type=click.IntRange(1), metavar="N", help="Another batch size than the job declares."
)
@click.option(
    "--weights",
    type=click.Choice(["inside", "safetensors", "external"]),
    default="inside",
    help="Where a predict job's weights go: into the .onnx file, or beside it in .safetensors or "
    ".onnx.data.",
)
@serving_options
@click.option(
    "--opset", type=int, default=21, show_default=True, metavar="N", help="The ONNX opset."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Load these values first: a checkpoint folder or a .safetensors file.",
)
@click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="A text to keep in the model; may be repeated.",
)
@click.option(
    "--sharding",
    type=click.IntRange(2),
    metavar="N",
    help="Say in the models, by the standard's annotations, what hints ask of N devices.",
)
@click.option("--no-verify", is_flag=True, help="Write without verifying.")
@release_option
@details_option
@json_option
@traceback_option
def export(
    target: str,
    args: tuple[str, ...],
    output: Path | None,
    on_device: Path | None,
    triton: Path | None,
    checkpoint: Path | None,
    release: str | None,
    details: bool,
    as_json: bool,
    no_verify: bool,
    **options: Any,
) -> None:
    """Write a job of a script, or of an importable module, as ONNX, and verify it.

    The script is imported, its `if __name__ == "__main__"` part left out; ARGS are its arguments.
    A predict job becomes one file, a train job a folder that flow2onnx_runtime trains.
    The exit code is 1 if the verification fails.
    """
    whole = ("predict", "accumulate", "ort_format", "dynamic_batch")
    check_together(excludes=[("triton", name) for name in whole])
    output = _place(output, on_device, triton)
    served = _serving_options(
        {k: options.pop(k) for k in ("name", "labels", "max_batch", "delay_ms")}, triton
    )
    options["on_device"] = on_device is not None
    options["metadata"] = key_values(options["metadata"])
    options["sharding"] = options["sharding"] or False
    for_serving = serving_arguments(options, is_triton=triton is not None)
    options["predict"] = list(options["predict"]) or None
    with opened_job(target, args, release) as job, working(f"Exporting {target}"):
        name = job.spec.name
        options["verify"] = not no_verify
        if triton is not None:
            options = {k: options[k] for k in _SERVED} | served
        options |= for_serving
        report = _export(job, output, checkpoint, is_triton=triton is not None, **options)
    files = _files(output if triton is None else Path(report.subject))
    if as_json:
        sizes = {str(path): path.stat().st_size for path in files}
        print_json({"job": name, "files": sizes, **report.to_dict()})
    else:
        heading(name, f"exported to {output}")
        print_files(files)
        note("")
        print_report(report, details=details)
    sys.exit(0 if report.ok else 1)


def _place(*places: Path | None) -> Path:
    given = [path for path in places if path is not None]
    if len(given) != 1:
        raise click.UsageError("give one of -o OUT, --on-device DIR and --triton REPO")
    return given[0]


# the options of an export that one for a repository has too
_SERVED = ("batch", "weights", "opset", "metadata", "verify")


def _serving_options(given: dict[str, Any], triton: Path | None) -> dict[str, Any]:
    """The options for a repository, as `export_triton` takes them."""
    asked = {name: value for name, value in given.items() if value is not None}
    if asked and triton is None:
        name = next(iter(asked)).replace("_", "-")
        raise click.UsageError(f"--{name} is for --triton REPO")
    if "labels" in asked:
        asked["labels"] = asked["labels"].read().splitlines()
    if "delay_ms" in asked:
        asked["delay"] = asked.pop("delay_ms") / 1000
    return asked


def _export(
    job: JobFunction, output: Path, checkpoint: Path | None, *, is_triton: bool, **options: Any
) -> Report:
    token = SESSION.set(job.session)  # a module imported before has a session of its own
    try:
        job.session.start_for_values()  # writing files needs no device but the CPU
        if checkpoint is not None:
            _load(checkpoint)
        return (export_triton if is_triton else export_job)(job, output, **options)
    except MisplacedOptionError as error:
        raise error.as_flag() from None
    finally:
        SESSION.reset(token)


def _load(path: Path) -> None:
    saved = get(path)
    if not isinstance(saved, dict):
        raise CheckpointError(
            f"{path} is one variable, not a checkpoint", hint=f"give {path.parent}"
        )
    load_variables(saved)
    weights = [n for n, v in current_session().variables.items() if v.role == "variable"]
    missing = [name for name in weights if name not in saved]
    if missing and missing == weights:
        raise CheckpointError(
            f"{path} holds none of the weights of the jobs",
            hint=f"it holds {_join_names(list(saved))}; the jobs have {_join_names(missing)}",
        )
    if missing:
        _log.warning("%s does not hold %s: first values are kept", path, _join_names(missing))


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more or "nothing"


def _files(output: Path) -> list[Path]:
    """The files of an export: a folder's, or a model and the weights beside it."""
    if not output.exists():  # a version that was refused
        return []
    if output.is_dir():
        return sorted(output.iterdir())
    return [output, *(output.parent / name for name in describe(output)["external"])]
