"""Pages of every public name and command, written from the objects themselves at each build.

They are Markdown files in docs/reference/generated, which git leaves out.
"""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import flow2onnx_runtime
from docutils import nodes
from signatures import entry, markdown, signature
from sphinx import addnodes
from sphinx.application import Sphinx

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.job import JobFunction
from flow2onnx.api.surface import NAMES, ON_DEMAND
from flow2onnx.api.unsupported import Unsupported
from flow2onnx.cli.app import app as commands
from flow2onnx.dtypes import DType
from flow2onnx.engine import Explanation
from flow2onnx.export import Report
from flow2onnx.imported import TrainableModel

__all__ = ["setup"]

_RETIRED = {alias.old: alias.new for alias in ALIASES}
_RESULTS = (JobFunction, Report, Explanation, TrainableModel)  # what calls of `flow` give
_ABOUT = {
    "": "What stands directly below `flow`, which is `import flow2onnx as flow`.",
    "typing": "Annotations of job functions: `import flow2onnx.typing as tp`.",
    "experimental": "Names that were experimental in one release or another. All names that stand "
    "directly below `flow` and its namespaces are here once more.",
}


def write_pages(sphinx: Sphinx) -> None:
    """Write the pages anew; one that is as it was keeps its time, so that Sphinx reads it once."""
    folder = Path(sphinx.srcdir, "docs", "reference", "generated")
    pages = dict(_pages())
    for path in folder.rglob("*.md") if folder.exists() else ():
        if path.name not in pages:
            path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _pages() -> Iterator[tuple[str, str]]:
    spaces = sorted({name.rpartition(".")[0] for name in NAMES} | {"typing"})
    titles = [(f"flow.{s}" if s else "flow") for s in spaces]
    for space, title in zip(spaces, titles, strict=True):
        yield f"{title}.md", _namespace(space, title)
    yield "given.md", _results()
    yield "flow2onnx_runtime.md", _runtime()
    yield "commands.md", _commands()
    yield "names.md", _contents("Names below flow", titles)


def _contents(title: str, pages: Iterable[str]) -> str:
    listed = "\n".join(pages)
    return f"# {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def _namespace(space: str, title: str) -> str:
    prefix = f"{space}." if space else ""
    own = {n: getattr(tp, n) for n in tp.__all__} if space == "typing" else _names(space)
    if not space:
        own |= {n: getattr(flow, n) for names in ON_DEMAND.values() for n in names}
    there = {n: v for n, v in own.items() if not isinstance(v, Unsupported)}
    absent = {n: v for n, v in own.items() if isinstance(v, Unsupported)}
    text = f"# {title}\n\n{_ABOUT.get(space, '')}\n\n"
    text += "\n".join(_entry(prefix, name, there[name]) for name in sorted(there, key=str.lower))
    if absent:
        text += "\n## Not available\n\nThese raise an error that says why.\n\n"
        text += "\n".join(
            f"`flow.{prefix}{n}`\n: {_reason(v)}\n" for n, v in sorted(absent.items())
        )
    return text


def _names(space: str) -> dict[str, Any]:
    """The names of a namespace that are no namespaces themselves."""
    found = {}
    for full, value in NAMES.items():
        home, _, name = full.rpartition(".")
        if home == space and not inspect.ismodule(value):
            found[name] = value
    return found


def _entry(prefix: str, name: str, value: Any) -> str:
    full = f"flow.{prefix}{name}"
    new = _RETIRED.get(prefix + name)
    retired = f"Deprecated: write `flow.{new}`.\n\n" if new else ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return entry("exception", full, value)
    if inspect.isclass(value):
        return entry("class", full, value, heading=full + signature(value))
    if isinstance(value, DType) or not callable(value):
        doc = markdown(str(value) if isinstance(value, DType) else inspect.getdoc(value) or "")
        return f"````{{py:data}} {full}\n:type: {type(value).__name__}\n\n{doc}\n````\n"
    return retired + entry("function", full, value, heading=full + signature(value))


def _reason(value: Unsupported) -> str:
    return markdown(inspect.getdoc(value) or "").removeprefix("Not available: ").replace("\n", " ")


def _results() -> str:
    entries = (entry("class", c.__name__, c, heading=c.__name__) for c in _RESULTS)
    about = "Jobs are made by `flow.global_function` and its kin; the others are what calls return."
    return f"# Jobs and results\n\n{about}\n\n" + "\n".join(entries)


def _runtime() -> str:
    text = f"# flow2onnx_runtime\n\n{markdown(inspect.getdoc(flow2onnx_runtime) or '')}\n\n"
    values = {n: getattr(flow2onnx_runtime, n) for n in flow2onnx_runtime.__all__}
    return text + "\n".join(_runtime_entry(n, values[n]) for n in sorted(values, key=str.lower))


def _runtime_entry(name: str, value: Any) -> str:
    full = f"flow2onnx_runtime.{name}"
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        shown = full + (signature(value) if kind == "class" else "")
        return entry(kind, full, value, heading=shown)
    if callable(value):
        return entry("function", full, value, heading=full + signature(value))
    return f"````{{py:data}} {full}\n:type: {type(value).__name__}\n````\n"


def _commands() -> str:
    about = "Each as `--help` shows it; `flow2onnx` alone lists them."
    context = click.Context(commands, info_name="flow2onnx", max_content_width=88)
    sections = (_command(commands.get_command(context, n), n, context, 2)
                for n in commands.list_commands(context))  # fmt: skip
    return f"# Commands\n\n{about}\n\n" + "\n".join(sections)


def _command(command: click.Command | None, name: str, parent: click.Context, level: int) -> str:
    if command is None:
        return ""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=88)
    text = f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        below = (_command(command.get_command(context, n), n, context, level + 1)
                 for n in command.list_commands(context))  # fmt: skip
        text += "\n" + "\n".join(below)
    return text


def unlink_foreign(_sphinx: Sphinx, document: nodes.document) -> None:
    """Take the links off types of others: `float` is not `flow.float`, an element type."""
    for reference in list(document.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and not reference["reftarget"][:1].isupper():
            reference.replace_self(reference.children)


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources, and mend what it makes of them."""
    sphinx.connect("builder-inited", write_pages)
    sphinx.connect("doctree-read", unlink_foreign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
