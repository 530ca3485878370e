"""What was measured on the ONNX project's node tests, as a file and as a page of the docs.

`python -m tests.onnx_standard.coverage` measures again and writes both.
"""

from collections import Counter
from dataclasses import astuple, fields
from pathlib import Path

from onnx.defs import SchemaError, get_all_schemas, get_schema

from flow2onnx.autodiff import NOT_DIFFERENTIABLE
from tests.onnx_standard.cases import standard_cases
from tests.onnx_standard.harness import TOLERANCE, Outcome, kind_of, outcome
from tests.onnx_standard.opsets import NEWEST

ROOT = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("measured.tsv")
PAGE = ROOT / "docs" / "gradients.md"

HEAD = f"""# Gradients of the ONNX standard

Written by `python -m tests.onnx_standard.coverage`; do not edit.

Every operator of the standard up to opset {NEWEST}, the newest that ONNX Runtime loads. A gradient
comes from a *rule* of ours, from an *expansion* of ours into operators with rules, or from the
*function body* that the standard gives the operator; a sequence is followed by *its readers* to
the tensors that it holds. The cases are the ONNX project's own node
tests: outputs equal to the recorded ones, and gradients equal to central differences along a random
direction for each input of real numbers. The error is relative to 1 + the sum of the parts' sizes;
in float64, where the runtime has the kernels, at most {TOLERANCE["float64"]:g} is allowed, in
float32 {TOLERANCE["float32"]:g}, in float16 {TOLERANCE["float16"]:g} and in bfloat16
{TOLERANCE["bfloat16"]:g}. Where a recorded point lies on an edge or a tie, the gradient is taken
beside it; what happens on edges and ties follows torch and has tests of its own.
A row of attention that looks at no key gives 0 and passes no gradient, as the standard and the
runtime have it, where torch gives NaN. An attribute that a gradient does not honour is refused.
Cases of opsets above {NEWEST} are read as opset {NEWEST} where the operator is there in this form.

| operator | gradient by | opsets | cases | checked | worst error | not checked, and why |
|---|---|---|---|---|---|---|
"""


def measure():
    """The outcomes of all cases, by name."""
    return [outcome(case) for _, case in sorted(standard_cases().items())]


def save(outcomes):
    """Write the outcomes to the file beside this module."""
    lines = ["\t".join(f.name for f in fields(Outcome))]
    lines += ["\t".join(_text(v) for v in astuple(o)) for o in outcomes]
    MEASURED.write_text("\n".join(lines) + "\n")


def load():
    """The outcomes in the file, by name."""
    _, *lines = MEASURED.read_text().splitlines()
    return {o.name: o for o in (_parsed(line.split("\t")) for line in lines)}


def _text(value):
    if isinstance(value, bool):
        return "moved" if value else ""
    if isinstance(value, float):
        return f"{value:.1e}"
    return "" if value is None else " ".join(str(value).split())


def _parsed(parts):
    name, operator, opset, forward, kind, error, precision, moved, reason = parts
    return Outcome(
        name, operator, int(opset), forward, kind, float(error) if error else None, precision,
        bool(moved), reason,
    )  # fmt: skip


def page(outcomes):
    """The page of the docs."""
    by_operator: dict[str, list[Outcome]] = {}
    for o in outcomes:
        by_operator.setdefault(o.operator, []).append(o)
    names = sorted({*standard_operators(), *(n for n in by_operator if n in standard_operators())})
    rows = [_row(name, by_operator.get(name, [])) for name in names]
    others = sorted(set(by_operator) - set(names))
    tail = "\n## Operators of other domains or newer opsets\n\n" + "".join(
        f"* {n}: {_reasons(by_operator[n])}\n" for n in others
    )
    return HEAD + "\n".join(rows) + "\n" + tail


def standard_operators():
    """The operators of the standard at the newest opset, without deprecated ones."""
    found = set()
    for schema in get_all_schemas():
        try:
            known = get_schema(schema.name, NEWEST, "")
        except SchemaError:
            continue
        if not known.deprecated:
            found.add(schema.name)
    return found


def _row(name, outcomes):
    opsets = sorted({o.opset for o in outcomes})
    checked = [o for o in outcomes if o.error is not None]
    kind = kind_of(name)
    if name in NOT_DIFFERENTIABLE:
        reason = NOT_DIFFERENTIABLE[name]
    elif not outcomes:
        reason = "no case"
    else:
        reason = _reasons([o for o in outcomes if o.error is None])
    span = f"{opsets[0]}–{opsets[-1]}" if len(opsets) > 1 else "".join(map(str, opsets))
    cells = name, kind, span, len(outcomes), len(checked), _worst(checked), reason
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def _worst(outcomes):
    worst = {}
    for o in outcomes:
        worst[o.precision] = max(o.error, worst.get(o.precision, 0.0))
    return ", ".join(f"{worst[p]:.0e} ({p})" for p in TOLERANCE if p in worst)


def _reasons(outcomes):
    counts = Counter(o.reason for o in outcomes)
    return "; ".join(f"{n} × {r}" for r, n in sorted(counts.items()))


def main():
    save(measure())
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(load().values()))


if __name__ == "__main__":
    main()
