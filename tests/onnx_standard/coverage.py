"""Measurements on the ONNX project's node tests, as a file and as a page of the docs.

`python -m tests.onnx_standard.coverage` measures again and writes both; with names of operators,
it measures their cases alone.
"""

import sys
from collections import Counter
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import onnxruntime
from onnx.defs import SchemaError, get_all_schemas, get_schema

from flow2onnx.autodiff import NOT_DIFFERENTIABLE
from tests.onnx_standard.cases import standard_cases
from tests.onnx_standard.harness import CRASHED, TOLERANCE, Outcome, kind_of, outcome
from tests.onnx_standard.opsets import NEWEST

ROOT = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("measured.tsv")
PAGE = ROOT / "docs" / "gradients.md"

HEAD = """# Gradients of the ONNX standard

Written by `python -m tests.onnx_standard.coverage`; do not edit.

Every operator of the standard up to opset {opset}, the newest that ONNX Runtime {runtime}
loads. A gradient comes from a *rule* of ours, from an *expansion* of ours into operators with
rules, or from the *function body* that the standard gives the operator; a sequence is followed by
*its readers* to the tensors that it holds. The cases are the ONNX project's own node tests: outputs
equal to the recorded ones, and gradients equal to central differences along a random direction for
each input of real numbers, both in float64 where the runtime has the kernels. The error is relative
to 1 + the sum of the parts' sizes; in float64 at most {float64:g} is allowed, in float32
{float32:g}, in float16 {float16:g} and in bfloat16 {bfloat16:g}. Where a recorded point lies on an
edge or a tie, the gradient is taken beside it; what happens on edges and ties follows torch and has
tests of its own.
A row of attention that looks at no key gives 0 and passes no gradient, as the standard and the
runtime have it, where torch gives NaN. An attribute that a gradient does not honour is refused.
Cases of opsets above {opset} are read as opset {opset} where the operator is there in this form.

Of {cases} cases the gradients of {agreeing} agree, {wrong} are wrong, {crashed} crashed; the others
are not checked, for the reasons in the last column.

| operator | gradient by | opsets | cases | checked | worst error | not checked, and why |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Measurement:
    """The outcomes of all cases by name, the newest opset they were read at, and the runtime."""

    opset: int
    runtime: str
    outcomes: dict[str, Outcome]

    @property
    def agreeing(self):
        """The outcomes whose gradients are within the tolerance."""
        return [o for o in self._checked() if o.error <= TOLERANCE[o.precision]]

    @property
    def wrong(self):
        """The outcomes whose gradients are not."""
        return [o for o in self._checked() if not o.error <= TOLERANCE[o.precision]]

    @property
    def crashed(self):
        """The outcomes that are exceptions nobody expected."""
        return [o for o in self.outcomes.values() if o.reason.startswith(CRASHED)]

    def _checked(self):
        return [o for o in self.outcomes.values() if o.error is not None]


def measure(operators=()):
    """The outcomes of all cases, or of those of some operators, on the installed runtime."""
    cases = [c for _, c in sorted(standard_cases().items())]
    outcomes = (outcome(c) for c in cases if not operators or c.operator in operators)
    runtime = ".".join(onnxruntime.__version__.split(".")[:2])
    return Measurement(NEWEST, runtime, {o.name: o for o in outcomes})


def save(measured):
    """Write the outcomes to the file beside this module."""
    lines = [f"# opset {measured.opset} onnxruntime {measured.runtime}"]
    lines.append("\t".join(f.name for f in fields(Outcome)))
    lines += ["\t".join(_text(v) for v in astuple(o)) for o in measured.outcomes.values()]
    MEASURED.write_text("\n".join(lines) + "\n")


def load():
    """The measurement in the file."""
    first, _, *lines = MEASURED.read_text().splitlines()
    _, _, opset, _, runtime = first.split()
    outcomes = (_parsed(line.split("\t")) for line in lines)
    return Measurement(int(opset), runtime, {o.name: o for o in outcomes})


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


def page(measured):
    """The page of the docs."""
    by_operator: dict[str, list[Outcome]] = {}
    for o in measured.outcomes.values():
        by_operator.setdefault(o.operator, []).append(o)
    names = sorted(standard_operators(measured.opset))
    rows = [_row(name, by_operator.get(name, [])) for name in names]
    others = sorted(set(by_operator) - set(names))
    tail = "\n## Operators of other domains, or no longer in the standard\n\n" + "".join(
        f"* {n}: {_summary(by_operator[n])}\n" for n in others
    )
    head = HEAD.format(
        opset=measured.opset, runtime=measured.runtime, cases=len(measured.outcomes),
        agreeing=len(measured.agreeing), wrong=len(measured.wrong), crashed=len(measured.crashed),
        **TOLERANCE,
    )  # fmt: skip
    return head + "\n".join(rows) + "\n" + tail


def standard_operators(opset):
    """The operators of the standard at an opset, without deprecated ones."""
    found = set()
    for schema in get_all_schemas():
        try:
            known = get_schema(schema.name, opset, "")
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


def _summary(outcomes):
    checked = sum(o.error is not None for o in outcomes)
    reasons = _reasons([o for o in outcomes if o.error is None])
    return "; ".join(part for part in (checked and f"{checked} × checked", reasons) if part)


def _reasons(outcomes):
    counts = Counter(o.reason for o in outcomes)
    return "; ".join(f"{n} × {r}" for r, n in sorted(counts.items()))


def main(operators):
    known = load().outcomes if operators else {}
    found = measure(operators)
    save(replace(found, outcomes=dict(sorted((known | found.outcomes).items()))))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(load()))


if __name__ == "__main__":
    main(sys.argv[1:])
