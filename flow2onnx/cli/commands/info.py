"""`flow2onnx info`: what a model, a bundle or a checkpoint holds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import json_option
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
from flow2onnx.export import describe

__all__ = ["info"]

Facts = Mapping[str, Any]  # what `describe` returns

_MOST_OPERATORS = 12
_SAID_ELSEWHERE = tuple(f"flow2onnx.{key}" for key in ("job", "generation", "inputs", "outputs"))


@click.command(epilog="""\b
Examples:
  flow2onnx info mlp.onnx
  flow2onnx info mlp/ --json
  flow2onnx info snapshots/snapshot_20200615_081530_123456""")  # fmt: skip
@click.argument("path", type=click.Path(path_type=Path))
@json_option
@traceback_option
def info(path: Path, as_json: bool) -> None:
    """Tell what a model, a bundle, a checkpoint or a .safetensors file holds."""
    facts = describe(path)
    if as_json:
        print_json(facts)
        return
    heading(facts["path"], facts["kind"])
    _PRINTERS[facts["kind"]](facts)


def _model(facts: Facts) -> None:
    print_facts(
        {
            "graph": facts["graph"],
            "size": size_text(facts["bytes"] + sum(facts["external"].values())),
            "opset": f"{_domains(facts['domains'])}; IR {facts['ir_version']}",
            "producer": facts["producer"] or None,
            "parameters": _parameters(facts["parameters"]),
            "weights in": ", ".join(facts["external"]) or "the file itself",
            "nodes": f"{facts['node_count']}: {_operators(facts['nodes'])}",
            **_metadata(facts["metadata"]),
        }
    )
    _print_signature({"input": facts["inputs"], "output": facts["outputs"]})


def _bundle(facts: Facts) -> None:
    print_facts(
        {
            "job": facts["job"],
            "size": size_text(facts["bytes"]),
            "opset": facts["opset"],
            "producer": facts["producer"],
            "parameters": _parameters(facts["parameters"]),
            "state": _parameters(facts["state_totals"]),
            **_metadata(facts["metadata"]),
        }
    )
    models = facts["models"]
    note("")
    print_table(
        ("file", "size", "nodes", "operators"),
        [
            (name, size_text(size), *_nodes(models.get(name)))
            for name, size in sorted(facts["files"].items())
        ],
        right=("size", "nodes"),
    )
    losses = [r for r in facts["results"] if r["name"] in facts["losses"]]
    results = [r for r in facts["results"] if r not in losses]
    signature = {"feed": facts["feeds"], "loss": losses, "result": results}
    for job in facts["predict"]:
        signature[f"feed of {job['job']}"] = job["feeds"]
        signature[f"result of {job['job']}"] = job["results"]
    _print_signature(signature)
    note("")
    print_table(
        ("state", "type", "shape", "role", "changes"),
        [
            (s["name"], s["dtype"], shape_text(s["shape"]), s["role"], s["trainable"])
            for s in facts["state"]
        ],
    )


def _variables(facts: Facts) -> None:
    print_facts(
        {
            "size": size_text(facts["bytes"]),
            "parameters": _parameters(facts["parameters"]),
            **_metadata(facts.get("metadata", {})),
        }
    )
    note("")
    print_table(
        ("variable", "type", "shape", "size"),
        [
            (
                v["name"],
                v["dtype"],
                None if v["shape"] is None else shape_text(v["shape"]),
                size_text(v["bytes"]),
            )
            for v in facts["variables"]
        ],
        right=("size",),
    )


_PRINTERS: Mapping[str, Callable[[Facts], None]] = {
    "model": _model,
    "bundle": _bundle,
    "checkpoint": _variables,
    "weights": _variables,
}


def _print_signature(groups: Mapping[str, Sequence[Facts]]) -> None:
    note("")
    print_table(
        ("", "name", "type", "shape"),
        [
            (kind, tensor["name"], tensor["dtype"], shape_text(tensor["shape"]))
            for kind, tensors in groups.items()
            for tensor in tensors
        ],
    )


def _nodes(model: Facts | None) -> tuple[Cell, Cell]:
    return (None, "") if model is None else (model["node_count"], _operators(model["nodes"], 5))


def _operators(counts: Mapping[str, int], most: int = _MOST_OPERATORS) -> str:
    shown = [name if n == 1 else f"{n} {name}" for name, n in list(counts.items())[:most]]
    return ", ".join([*shown, "…"] if len(counts) > most else shown)


def _domains(versions: Mapping[str, int]) -> str:
    names = (name if name != "ai.onnx" else "" for name in versions)
    return ", ".join(f"{n} {v}".strip() for n, v in zip(names, versions.values(), strict=True))


def _parameters(totals: Facts) -> str:
    return f"{totals['count']:,} ({size_text(totals['bytes'])})"


def _metadata(texts: Mapping[str, str]) -> dict[str, Cell]:
    shown = {key: text for key, text in texts.items() if key not in _SAID_ELSEWHERE}
    return {key.removeprefix("flow2onnx."): text for key, text in shown.items()}
