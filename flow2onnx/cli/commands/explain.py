"""`flow2onnx explain`: what became of a job's flags, nodes and memory."""

from collections import Counter

import click

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import json_option, release_option
from flow2onnx.cli.script import opened_job
from flow2onnx.cli.show import heading, note, print_json, print_table, size_text, working
from flow2onnx.engine import Explanation

__all__ = ["explain"]


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  flow2onnx explain train.py:train_job
  flow2onnx explain models.mlp:train_job --json""",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@json_option
@release_option
@traceback_option
def explain(target: str, args: tuple[str, ...], as_json: bool, release: str | None) -> None:
    """Tell which flags of a job took effect, which provider runs what, and the memory it takes.

    TARGET is script.py:job or package.module:job; ARGS are the script's.
    """
    with opened_job(target, args, release) as job, working(f"Compiling {target}"):
        found = job.explain()
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)


def _print(found: Explanation) -> None:
    heading(f"{found.kind} job {found.job}", f"on {', '.join(found.providers)}")
    _print_flags(found)
    _print_nodes(found)
    note("")
    print_table(
        ("memory", "size", ""),
        [(m.kind, _size(m.bytes, m.estimated), m.note) for m in found.memory],
        right=("size",),
        whole=("memory", "size"),
    )
    _print_lowerings(found)


def _print_lowerings(found: Explanation) -> None:
    groups = Counter((c.lowering, c.form, c.why, len(c.forms)) for c in found.lowerings)
    if groups:
        note("")
        print_table(
            ("lowering", "form", "picked by", "of", "nodes"),
            [(name, form, why, str(of), str(n)) for (name, form, why, of), n in groups.items()],
            right=("of", "nodes"),
            whole=("lowering", "form"),
        )


def _print_flags(found: Explanation) -> None:
    if found.flags:
        note("")
        print_table(
            ("flag", "value", "effect", "outcome", "set at"),
            [(f.name, f.value, f.has_effect, f.outcome, f.source) for f in found.flags],
        )


def _print_nodes(found: Explanation) -> None:
    note("")
    if not found.nodes:
        note("this onnxruntime does not tell which provider runs which node")
        return
    print_table(
        ("provider", "nodes", "operators"),
        [(n.provider, str(n.count), _count_operators(n.operators)) for n in found.nodes],
        right=("nodes",),
        whole=("provider",),
    )
    if found.fallbacks:
        note(f"\nnot on {found.placed_on}, where the job was placed:")
        print_table(
            ("runs on", "operators", "why"),
            [(f.provider, _count_operators(f.operators), f.why) for f in found.fallbacks],
            whole=("runs on",),
        )


def _count_operators(operators: dict[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in operators.items())


def _size(count: int, is_estimated: bool) -> str:
    return f"about {size_text(count)}" if is_estimated else size_text(count)
