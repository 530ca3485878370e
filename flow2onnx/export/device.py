"""Extras of a bundle to ship: models in the runtime's own format, operators, a README."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from flow2onnx_runtime import Manifest, TensorSpec

from flow2onnx.errors import BundleError
from flow2onnx.onnx_io.read import open_model

__all__ = ["OPERATORS", "README", "convert", "write_notes"]

README, OPERATORS = "README.md", "required_operators.config"

_CONVERTER = "onnxruntime.tools.convert_onnx_models_to_ort"


def convert(folder: Path) -> list[str]:
    """Write each model of a folder as an .ort file too, and the operators that these use.

    Returns the names of the .ort files. The runtime's own converter does it, which fuses operators
    as opening the model would.
    """
    with tempfile.TemporaryDirectory() as place:
        target = Path(place)
        done = subprocess.run(
            [sys.executable, "-m", _CONVERTER, str(folder), "--output_dir", place,
             "--optimization_style", "Fixed"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        made = sorted(target.glob("*.ort"))
        wanted = sorted(p.stem for p in folder.glob("*.onnx"))
        if done.returncode or [p.stem for p in made] != wanted:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise BundleError(
                f"the models cannot be converted to .ort files: {''.join(last)}",
                hint="export without ort_format; onnxruntime's converter says why",
            )
        for path in made:
            (folder / path.name).write_bytes(path.read_bytes())
        (config,) = target.glob("required_operators*.config")
        (folder / OPERATORS).write_text(_drop_comments(config.read_text()))
    return [path.name for path in made]


def _drop_comments(config: str) -> str:
    """The converter's list without its comments, which name folders of this machine."""
    return "".join(f"{line}\n" for line in config.splitlines() if line and line[0] != "#")


def write_notes(folder: Path, manifest: Manifest) -> None:
    """Write the README and, if no converter did, the list of operators."""
    if not (folder / OPERATORS).exists():
        (folder / OPERATORS).write_text(_operators(folder, manifest))
    (folder / README).write_text(_readme(folder, manifest), encoding="utf-8")


def _operators(folder: Path, manifest: Manifest) -> str:
    found: set[str] = set()
    for name in sorted(n for n in manifest.files if n.endswith(".onnx")):
        found |= open_model(folder / name).operators()
    return f"ai.onnx;{manifest.opset};{','.join(sorted(found))}\n"


def _readme(folder: Path, manifest: Manifest) -> str:
    parts = [_head(manifest), _files(folder, manifest), _signature(manifest), _state(manifest)]
    return "\n".join([*parts, _use(manifest)])


def _head(manifest: Manifest) -> str:
    return f"""# {manifest.job}, to be trained on a device

Made by {manifest.producer}. The models are of opset {manifest.opset}, standard operators only. Any
ONNX Runtime from 1.22 on trains them: they are ordinary models to it.
`manifest.json` holds all that is said here, for programs.
"""


def _files(folder: Path, manifest: Manifest) -> str:
    lines = ["| file | bytes | what it is |", "|---|---|---|"]
    for name in sorted(manifest.files):
        lines.append(f"| `{name}` | {manifest.files[name].size} | {_what(name, manifest)} |")
    lines.append(f"| `{OPERATORS}` | {(folder / OPERATORS).stat().st_size} | {_OPERATORS_ARE} |")
    return "\n".join([*lines, ""])


_OPERATORS_ARE = (
    "the operators in use, for a reduced build of ONNX Runtime (`--include_ops_by_config`)"
)


def _what(name: str, manifest: Manifest) -> str:
    if name.endswith(".ort"):
        return f"`{Path(name).stem}.onnx` in ONNX Runtime's own format, for reduced builds"
    known = {manifest.init: "the first state, computed", manifest.step: "one training step"}
    if manifest.weights:
        known[manifest.weights] = "the first state, stored"
    if manifest.accumulate:
        known[manifest.accumulate.gradients] = "adds up the gradients of a batch"
        known[manifest.accumulate.update] = "one step of the mean gradients"
    jobs = {p.file: f"predicts: {p.job}" for p in manifest.predict}
    return (known | jobs)[name]


def _signature(manifest: Manifest) -> str:
    lines = [f"## {manifest.step}", "", f"Feeds: {_list_tensors(manifest.feeds)}.  "]
    losses = f" (losses: {', '.join(f'`{n}`' for n in manifest.losses)})"
    lines.append(
        f"Results: {_list_tensors(manifest.results)}{losses if manifest.losses else ''}.  "
    )
    lines.append("Every other input `v` is state, and output `next/v` is its next value.")
    for job in manifest.predict:
        lines += ["", f"## {job.file}", "", f"Feeds: {_list_tensors(job.feeds)}.  "]
        lines.append(f"Results: {_list_tensors(job.results)}.")
    return "\n".join([*lines, ""])


def _list_tensors(specs: Sequence[TensorSpec]) -> str:
    texts = [f"`{s.name}` {s.dtype} {_shape(s.shape)}" for s in specs]
    return ", ".join(texts) or "none"


def _shape(shape: Iterable[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _state(manifest: Manifest) -> str:
    lines = ["## State", "", "| tensor | role | type |", "|---|---|---|"]
    for s in manifest.state:
        role = f"{s.role} of `{s.of}`" if s.of else s.role
        lines.append(f"| `{_cell(s.name)}` | {_cell(role)} | {s.dtype} {_shape(s.shape)} |")
    if manifest.learning_rate:
        lines += ["", f"`{manifest.learning_rate}`: write a rate of at least 0 into it to override "
                      "the schedule, -1 to give it back."]  # fmt: skip
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return re.sub(r"([|])", r"\\\1", text)


def _use(manifest: Manifest) -> str:
    names = ", ".join(re.sub(r"\W", "_", feed.name) for feed in manifest.feeds)
    predicts = manifest.predict and manifest.predict[0].holds
    last = 'trainer.export_predict("out")  # a model with the present weights\n' if predicts else ""
    return f"""## Use

```python
from flow2onnx_runtime import Trainer  # pip install 'flow2onnx-runtime[cpu]'

trainer = Trainer("this folder")
results = trainer.step({names})
trainer.save("state.safetensors")  # whole or not at all; load() goes on bit for bit
{last}```

Without it: check the files against `manifest.json`; read the first state; for each batch feed the
data and the state, and take every `next/v` as the new `v`. Keep two buffers for each state tensor:
one buffer as input and output is accepted by ONNX Runtime and gives wrong numbers.
"""
