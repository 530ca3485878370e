"""`flow2onnx tune`: measure which forms of a job's lowerings are fastest, once for a machine."""

from pathlib import Path
from typing import Any

import click
from flow2onnx_runtime.tune import SECONDS

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import check_together, json_option, release_option
from flow2onnx.cli.script import opened_job
from flow2onnx.cli.show import heading, note, print_json, print_table, working
from flow2onnx.engine.tuning import Tuning, cache_path, emit_trials, measure_lowerings

__all__ = ["tune"]


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  flow2onnx tune train.py:train_job
  flow2onnx tune train.py:train_job --cache tuned.json
  flow2onnx tune train.py:train_job --emit models.zip
  python -m flow2onnx_runtime.tune models.zip -o tuned.json     (on the target)""",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--cache", type=click.Path(path_type=Path), metavar="FILE",
              help="Where answers are kept; else what runtime.tuning_cache_path says.")  # fmt: skip
@click.option("--emit", type=click.Path(path_type=Path), metavar="FILE",
              help="Measure nothing here: write models to measure on another machine.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True,
              help="For one form, about.")  # fmt: skip
@json_option
@release_option
@traceback_option
def tune(
    target: str,
    args: tuple[str, ...],
    cache: Path | None,
    emit: Path | None,
    seconds: float,
    as_json: bool,
    release: str | None,
) -> None:
    """Measure the forms of a job's gradients for its shapes, and keep the answers.

    A job with config.runtime.autotune takes the fastest forms from there; job.export(...,
    tuning=FILE) takes those of a file measured on one machine.

    TARGET is script.py:job or package.module:job; ARGS are the script's.
    """
    check_together(excludes=[("emit", "cache"), ("emit", "seconds"), ("emit", "as_json")])
    with opened_job(target, args, release) as job:
        with working(f"Compiling {target}"):
            opening = job.session.opening(job.spec.name)
        path = cache or cache_path(job.spec.config.value("runtime.tuning_cache_path"))
        if emit is None:
            found = measure_lowerings(
                opening.job, opening.options, path, report=_log_progress, seconds=seconds
            )
        else:
            found, count = [], emit_trials(opening.job, emit)
    if emit is not None:
        note(f"{emit}: {count} lowerings; on the target: "
             f"python -m flow2onnx_runtime.tune {emit.name} -o tuned.json")  # fmt: skip
    elif as_json:
        print_json({"file": str(path), "lowerings": [_facts(t) for t in found]})
    else:
        _print(job.spec.name, path, found)


def _log_progress(done: int, total: int) -> None:
    click.echo(f"measuring {done + 1} of {total}", err=True)


def _facts(tuning: Tuning) -> dict[str, Any]:
    answer = tuning.answer
    return {
        "lowering": tuning.question.lowering,
        "question": tuning.question.key,
        "nodes": tuning.nodes,
        "rule": tuning.rule,
        "form": answer.form if answer is not None else None,
        "ms": dict(answer.ms) if answer is not None else {},
    }


def _print(job: str, path: Path, found: list[Tuning]) -> None:
    heading(f"job {job}", str(path))
    if not found:
        note(_verdict(job, found))
        return
    print_table(
        ("lowering and shapes", "nodes", "rule", "fastest", "ms"),
        [
            (
                t.question.key,
                str(t.nodes),
                t.rule,
                t.answer.form if t.answer is not None else None,
                _times(t),
            )
            for t in found
        ],
        right=("nodes",),
        whole=("rule", "fastest"),
    )
    note("")
    note(_verdict(job, found))


def _verdict(job: str, found: list[Tuning]) -> str:
    """The finding of a measurement, in one line."""
    answers = [(t.rule, t.answer) for t in found if t.answer is not None]
    if not answers:
        return f"{job}: nothing to choose, none of its nodes has several forms that run here"
    gains = [a.ms[rule] / a.ms[a.form] for rule, a in answers if a.form != rule and rule in a.ms]
    if not gains:
        return f"{job}: the forms that the rules choose are the fastest of all {len(answers)}"
    return (
        f"{job}: {len(gains)} of {len(answers)} lowerings have a faster form than the rule's, up "
        f"to {max(gains):.2g} times; config.runtime.autotune and export(tuning=…) take them"
    )


def _times(tuning: Tuning) -> str:
    if tuning.answer is None:
        return "not measured: fewer than two forms run here"
    times = sorted(tuning.answer.ms.items(), key=lambda pair: pair[1])
    return ", ".join(f"{form} {ms:.3g}" for form, ms in times)
