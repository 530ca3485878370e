"""The public names as an editor shows them: python -m tests.editors, in an editable installation.

jedi completes every namespace, and shows a signature and a docstring for every callable; pyright
accepts every example. Needs jedi and pyright; `make editors` installs them.
"""

import inspect
import subprocess
import sys
from collections.abc import Iterator

import flow2onnx_runtime
import jedi

from flow2onnx.api.surface import MIRRORS, NAMES, ON_DEMAND
from tests.readme import ROOT, blocks, scripts

_HEAD = "import flow2onnx as flow\nimport flow2onnx_runtime\n"


def main() -> None:
    """Print what is missing; fail if anything is."""
    values = dict(NAMES)
    late = [n for names in ON_DEMAND.values() for n in names]
    names = [f"flow.{n}" for n in sorted({*values, *MIRRORS, *late})]
    names += [f"flow2onnx_runtime.{n}" for n in flow2onnx_runtime.__all__]
    missing = [*_not_completed(names), *_without_help(names, values)]
    print(*missing, sep="\n")
    print(f"jedi: {len(names)} names, {len(missing)} things missing")
    failed = _pyright()
    sys.exit(1 if missing or failed else 0)


def _not_completed(names: list[str]) -> Iterator[str]:
    spaces: dict[str, set[str]] = {}
    for name in names:
        space, _, last = name.rpartition(".")
        spaces.setdefault(space, set()).add(last)
    for space, wanted in sorted(spaces.items()):
        shown = {c.name for c in jedi.Script(f"{_HEAD}{space}.").complete()}
        yield from (f"{space}.{n} is not completed" for n in sorted(wanted - shown))


def _without_help(names: list[str], values: dict[str, object]) -> Iterator[str]:
    """The callables of which jedi knows no signature or docstring, mirrors left out."""
    for name in names:
        value = values.get(name.removeprefix("flow."))
        if name.startswith("flow.") and (not callable(value) or inspect.ismodule(value)):
            continue
        found = jedi.Script(_HEAD + name).help()
        # of `flow.dtypes` jedi shows the module of the same name
        if not any(d.docstring(raw=True) or d.type in ("statement", "module") for d in found):
            yield f"{name} has no docstring"
        if any(d.type == "function" and not d.get_signatures() for d in found):
            yield f"{name} has no signature"


def _pyright() -> int:
    """The status of pyright on the examples and on the README's program."""
    *_, (_, program) = scripts(blocks((ROOT / "README.md").read_text(encoding="utf-8")))
    readme = ROOT / "build" / "readme.py"
    readme.parent.mkdir(exist_ok=True)
    readme.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    statuses = [subprocess.run([*command, *paths], cwd=ROOT).returncode for paths in ([], [readme])]
    return max(statuses)


if __name__ == "__main__":
    main()
