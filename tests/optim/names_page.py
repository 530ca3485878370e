"""Optimizers, schedules and losses by name as a page of the docs, from their docstrings.

`python -m tests.optim.names_page` writes it.
"""

import inspect
from pathlib import Path

from flow2onnx.ops.named_losses import LOSSES
from flow2onnx.optim.named import OPTIMIZERS
from flow2onnx.optim.named_schedules import SCHEDULES
from tests.ops.loss_cases import CASES as LOSS_CASES
from tests.optim.torch_cases import CASES
from tests.optim.torch_cases import SCHEDULES as TORCH_SCHEDULES

PAGE = Path(__file__).parents[2] / "docs" / "optimizers_and_losses.md"
_BY_PAPER = {"focal", "softmax_focal", "dice", "hinge", "info_nce"}
HEAD = """# Optimizers, schedules and losses by name

Written by `python -m tests.optim.names_page`; do not edit.

One vocabulary for imported models, the command line and jobs. A name has its settings in brackets,
as Python literals; what is misspelt is answered with the nearest name.

```python
made = flow.make_trainable(
    "model.onnx",
    "cross_entropy(label_smoothing=0.1)",
    "adamw(weight_decay=0.1)",
    lr=1e-3,
    schedule="one_cycle(total_steps=10000)",
    clip_norm=1.0,
    ema=0.999,
    groups={
        ("*.bias", "norm*"): {"weight_decay": 0.0},
        "embed*": {"lr": 1e-4},
        "backbone.*": {"frozen": True},
        "head.weight": {"optimizer": "muon"},
    },
)
```

    flow2onnx make-trainable model.onnx --loss "cross_entropy(label_smoothing=0.1)" \\
        --optimizer "adamw(weight_decay=0.1)" --lr 1e-3 --schedule "one_cycle(total_steps=10000)" \\
        --clip-norm 1.0 --ema 0.999 --groups "*.bias norm*: weight_decay=0.0" -o bundle/

```python
@flow.global_function(type="train")
def job(x: tp.Numpy.Placeholder((100, 20)), y: tp.Numpy.Placeholder((100,), dtype=flow.int64)):
    scores = flow.layers.dense(x, 10, name="head")
    loss = flow.losses.cross_entropy(scores, y, label_smoothing=0.1)
    optimizer = flow.optimizer.named("lion", 1e-4, schedule="cosine(total_steps=10000)")
    optimizer.minimize(loss)
    return loss
```

* **Groups** are shell patterns, or tuples of them, with what differs: `lr`, with which the
  schedule begins there, `weight_decay`, `optimizer`, or `frozen`. A pattern that matches nothing
  and a tensor in two groups are errors. A rate set at run time is that of all; groups keep their
  share of it, and one with an optimizer and no `lr` has the rate of all.
* **Clipping**: each number of a gradient to [-clip_value, clip_value], then the joint norm of all
  gradients by min(1, clip_norm / (norm + 1e-6)): torch's `clip_grad_value_`, `clip_grad_norm_`.
* **Averages** of weights: a = ema * a + (1 - ema) * w after each step but the first, which makes
  them the weights; torch's `AveragedModel` with `get_ema_multi_avg_fn`. They are the slots `w-ema`
  and, of imported models, what the predict jobs `ema` and `ema-eval` compute with.
* **Reduce on plateau** is the runtime's, which alone sees how training goes on: the callback
  `ReduceOnPlateau` of `Trainer.fit` sets `Trainer.learning_rate`.
* **Tables of which a step looks rows up** (`flow.gather` on axis 0). What becomes of rows that
  it did not read:

  | optimizer | rows that are not read |
  |---|---|
  | `sgd` without momentum and `adagrad`, both without decay; OneFlow's SGD likewise | \
stay, as by a gradient of 0; of a large table only rows are touched |
  | all others but `lamb`, `lars` and `muon`, of a table listed in \
`config.indexed_slices_optimizer_conf`; OneFlow's SGD, Adam and LazyAdam likewise | \
stay, slots included: moments do not fade, decay waits; corrections for the start count the steps \
of the job, as torch's SparseAdam does |
  | any other, and tables that are not listed | \
are updated by a gradient of 0: moments fade and move them on |

  Clipping and the loss scale see the same gradient in all three.

  Such a table is in memory once, beside one for each slot, while it is drawn, trained, saved,
  loaded from a checkpoint's folder and exported with `verify=False`. Of 100,000,000 rows by 16 a
  job by SGD takes 6.5 GB (`python -m benchmarks.large_table`). For a moment, drawing from a
  truncated normal takes four more, loading a `.safetensors` file one, verifying an export six.
* `flow.optimizer.SGD`, `Adam` and their kin are OneFlow's own, whose formulas differ in places.
"""


def cells(*parts):
    """A row of a table."""
    return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"


def formula(documented):
    """A docstring in one line."""
    return " ".join(inspect.getdoc(documented).split())


def settings(function, hidden=()):
    """The parameters that are settings, with their defaults."""
    found = []
    for name, p in inspect.signature(function).parameters.items():
        if name not in hidden:
            found.append(f"`{name}`" if p.default is p.empty else f"`{name}={p.default!r}`")
    return ", ".join(found)


def optimizers():
    """Rows of optimizers."""
    of_torch = {text.partition("(")[0] for text, *_ in CASES.values()}
    for name, rule in OPTIMIZERS.items():
        held = f"{'torch' if name in of_torch else 'the paper in numpy'}, 20 steps"
        yield cells(f"`{name}`", formula(rule), settings(rule), held)


def schedules():
    """Rows of schedules."""
    of_torch = {text.partition("(")[0] for text, *_ in TORCH_SCHEDULES.values()}
    for name, kind in SCHEDULES.items():
        held = "torch" if name in of_torch else "transformers' formula"
        yield cells(f"`{name}`", formula(kind), settings(kind, ("base_lr",)), held)


def losses():
    """Rows of losses."""
    assert {name for name, *_ in LOSS_CASES.values()} == set(LOSSES)
    for name, loss in LOSSES.items():
        read = [f"`{n}`" for n in loss.operands[1:]]
        held = "the paper's formula, 20 steps" if name in _BY_PAPER else "torch, 20 steps"
        shown = settings(loss.function, loss.operands)
        yield cells(f"`{name}`", ", ".join(read), formula(loss.function), shown, held)


def page():
    """The whole page."""
    heads = {
        "Optimizers": (("name", "formula and source", "settings", "equal within 1e-6 to"),
                       optimizers()),
        "Schedules": (("name", "formula and source", "settings", "equal to"), schedules()),
        "Losses": (("name", "reads", "formula and source", "settings", "equal within 1e-6 to"),
                   losses()),
    }  # fmt: skip
    text = HEAD
    for title, (columns, rows) in heads.items():
        lines = [cells(*columns), "|" + "---|" * len(columns), *rows]
        text += f"\n## {title}\n\n" + "\n".join(lines) + "\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
