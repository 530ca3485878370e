"""`flow2onnx summary`: the layers of a model in a table."""

import click
from flow2onnx_runtime.view import Summary, summary_of

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.graphs import graph_at
from flow2onnx.cli.options import json_option, release_option
from flow2onnx.cli.show import (
    Cell,
    heading,
    note,
    print_facts,
    print_json,
    print_table,
    shape_text,
    size_text,
)

__all__ = ["summary"]


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  flow2onnx summary resnet.onnx
  flow2onnx summary bundle/
  flow2onnx summary train.py:train_job --json""",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@json_option
@release_option
@traceback_option
def summary(target: str, args: tuple[str, ...], as_json: bool, release: str | None) -> None:
    """Tell the layers of a model: output shapes, parameters, multiplications, memory.

    TARGET is an .onnx file, a bundle, script.py:job or package.module:job; ARGS are the script's.
    """
    found = summary_of(graph_at(target, args, release))
    print_json(found.as_dict()) if as_json else _print(found)


def _print(found: Summary) -> None:
    heading(found.title, found.facts.get("producer", ""))
    knows = found.trained is not None
    columns = ["layer", "operators", "output shape", "parameters"]
    columns += ["trains"] * knows + ["MACs", "memory"]
    rows: list[list[Cell]] = []
    for layer in found.layers:
        trains = [_trains(layer.parameters, layer.trained)] * knows
        rows.append([
            layer.name, layer.operators, shape_text(layer.output.shape),
            f"{layer.parameters:,}" if layer.parameters else "", *trains,
            f"{layer.macs:,}" if layer.macs else "", size_text(layer.bytes),
        ])  # fmt: skip
    whole = ("output shape", "parameters", "MACs", "memory")
    print_table(columns, rows, right=("parameters", "MACs", "memory"), whole=whole)
    note("")
    print_facts(_totals(found))


def _totals(found: Summary) -> dict[str, Cell]:
    size = size_text(found.parameter_bytes)
    facts: dict[str, Cell] = {"parameters": f"{found.parameters:,} ({size})"}
    if found.trained is not None:
        facts |= {"trainable": f"{found.trained:,}", "frozen": f"{found.frozen:,}"}
    facts["MACs"] = f"{found.macs:,} in a forward pass"
    facts["memory"] = f"{size_text(found.bytes)} that a forward pass makes"
    nodes = [f"{count:,} {role}" for role, count in found.nodes.items()]
    facts["nodes"] = ", ".join(nodes) or "none"
    if found.is_free:
        facts["free sizes"] = "count as 1"
    return facts


def _trains(parameters: int, trained: int | None) -> Cell:
    """Yes or no, how many where it is some, and nothing where there are no parameters."""
    if not parameters or trained is None:
        return ""
    return f"{trained:,}" if 0 < trained < parameters else trained == parameters
