"""`flow2onnx doctor`: whether this installation works, and what to do if not."""

from typing import Any

import click
from rich.text import Text

from flow2onnx.cli.diagnosis import diagnose
from flow2onnx.cli.options import json_option
from flow2onnx.cli.show import (
    cell,
    heading,
    note,
    print_facts,
    print_json,
    print_table,
    working,
)

__all__ = ["doctor"]


@click.command(epilog="""\b
Examples:
  flow2onnx doctor
  flow2onnx doctor --json | jq .problems""")  # fmt: skip
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Tell what is installed, which providers work, and run a small train step.

    The exit code is 1 if jobs cannot run here.
    """
    with working("Looking at the installation"):
        facts = diagnose()
    print_json(facts) if as_json else _print(facts)
    context.exit(0 if facts["ok"] else 1)


def _print(facts: dict[str, Any]) -> None:
    runtime, step = facts["onnxruntime"], facts["train_step"]
    python, processor = facts["python"], facts["processor"]
    print_facts({
        "Python": f"{python['version']} ({python['implementation']}), {python['executable']}",
        "platform": python["platform"],
        "processor": f"{processor['cores']} cores, {processor['usable_cores']} of them usable here",
        **facts["packages"],
        **facts["environment"],
        "onnxruntime": _runtime(runtime),
        "train step": _step(step),
    })  # fmt: skip
    if facts["providers"]:
        note("")
        print_table(("provider", "compiled in", "usable", "remedy"),
                    [(p["name"], p["compiled_in"], p["usable"], p["why_not"] or "")
                     for p in facts["providers"]])  # fmt: skip
    note("")
    print_table(("engine of several processes", "usable", "version", "remedy"),
                [(e["name"], e["usable"], e["version"] or "", e["why_not"] or "")
                 for e in facts["engines"]])  # fmt: skip
    _print_problems(facts["problems"])


def _runtime(runtime: dict[str, Any]) -> Text:
    if runtime["error"]:
        return Text(runtime["error"], "red")
    return cell(
        f"{runtime['version']}, {runtime['build']} build; takes opset ≤ {runtime['newest_opset']}, "
        f"IR ≤ {runtime['newest_ir']}"
    )


def _step(step: dict[str, Any]) -> Text:
    if not step["ok"]:
        return Text(step["error"], "red")
    return Text(
        f"works: {step['steps']} steps in {step['seconds']:.2f} s, loss "
        f"{step['first_loss']:.3f} → {step['last_loss']:.3f}",
        "green",
    )


def _print_problems(problems: list[dict[str, Any]]) -> None:
    if not problems:
        note("\nNo problems found.", "bold green")
    for problem in problems:
        heading(f"\nProblem: {problem['what']}")
        for line in problem["remedy"]:
            note(f"  {line}")
