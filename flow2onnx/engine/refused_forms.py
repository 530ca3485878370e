"""Forms of gradients that a provider refuses at the first run: which others there are."""

import re
from collections.abc import Iterable

from flow2onnx_runtime.errors import RunError

from flow2onnx.lowering.forms import Choice

__all__ = ["with_other_forms"]

# The runtime names the node that failed in its text alone.
_NODE = re.compile(r"while running (\w+) node\. Name:'([^']*)'")


def with_other_forms(error: RunError, choices: Iterable[Choice]) -> RunError:
    """The error of a run with the settings that choose another form for the node that failed.

    It is the error itself where no lowering made that node, or with one form only.
    """
    found = _NODE.search(error.message)
    if type(error) is not RunError or found is None:
        return error
    operator, node = found.groups()
    others = [
        f"config.runtime.lowering({choice.question.lowering!r}, {form!r})"
        for choice in choices
        if node.startswith(f"{choice.node}/")
        for form in choice.question.forms
        if form != choice.form
    ]
    if not others:
        return error
    hint = f"another form may run: {', or '.join(dict.fromkeys(others))}"
    hint = "; ".join(filter(None, (hint, error.hint)))
    return RunError(f"the provider refuses {operator} {node}: {error.message}", hint=hint)
