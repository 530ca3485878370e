"""Shared by the tests of integrations: the blocks of docs/integrations.md, and their data."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import flow2onnx as flow
from tests.imported import models

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "integrations.md"


def needs(*modules):
    """A mark that skips a test, with the reason, where a package is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"{', '.join(missing)} is not installed: make integrations"
    )


def data():
    """Rows of four numbers in three classes that a perceptron learns, some held back."""
    draw = np.random.default_rng(6)
    x = draw.standard_normal((150, 4)).astype(np.float32)
    labels = (x.sum(1) > 0).astype(np.int64) + (x[:, 0] > 1)
    return dict(x=x[:100], labels=labels[:100], held_x=x[100:], held_labels=labels[100:])


def save_bundle(folder, **options):
    """The bundle of a perceptron with a free batch."""
    made = flow.make_trainable(
        models.perceptron(), "cross_entropy", "adam", **{"lr": 0.05, **options}
    )
    made.save(folder, verify=False)


def run_section(title):
    """Run the first block of the page and those of a section, as pasted; their names."""
    text = PAGE.read_text("utf-8")
    before, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    (section,) = [s for s in sections if s.startswith(f"{title}\n")]
    names = data()
    for block in re.findall(r"```python\n(.*?)```", before + section, re.DOTALL):
        exec(compile(block, f"docs/integrations.md: {title}", "exec"), names)
    return names
