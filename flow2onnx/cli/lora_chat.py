"""`flow2onnx lora chat`: an adapter tried at once, as onnxruntime-genai serves it."""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from flow2onnx_runtime.adapters import Adapter, read_adapter

from flow2onnx.cli.failures import traceback_option
from flow2onnx.cli.options import json_option
from flow2onnx.cli.show import working
from flow2onnx.errors import ArgumentError, BundleError, FlowError
from flow2onnx.imported.low_rank.chat import ChatModel, Wording, find_adapters
from flow2onnx.imported.low_rank.folder import open_language_model
from flow2onnx.imported.low_rank.greedy import has_slots
from flow2onnx.imported.low_rank.tokens import open_tokenizer

__all__ = ["chat"]

_FILE = click.Path(path_type=Path)
_NONE = "none"
_HELP = """\
/reset           begin a new chat
/adapter NAME    answer with another adapter, of a name or in a file; none for the base model
/adapter         the adapters that there are
/system TEXT     begin a new chat with this system prompt
/quit            end"""


class _Chat:
    """A conversation: what was said, by whom the next answer is, and the commands."""

    def __init__(
        self, model: ChatModel, adapter: str | None, system: str | None, wording: Wording
    ) -> None:
        self.model, self.adapter, self.system, self.wording = model, adapter, system, wording
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget what was said."""
        self.messages = [{"role": "system", "content": self.system}] if self.system else []
        self.model.reset()

    def answer(self, line: str) -> Iterator[str]:
        """The answer to what the user says, as it comes; a broken-off one is forgotten."""
        asked = [*self.messages, {"role": "user", "content": line}]
        parts: list[str] = []
        for part in self.model.answer(asked, self.adapter, self.wording):
            parts.append(part)
            yield part
        self.messages = [*asked, {"role": "assistant", "content": "".join(parts)}]

    def command(self, line: str) -> str | None:
        """Do what a line that begins with a slash asks; the text to show, None to end."""
        name, _, rest = line.strip().partition(" ")
        if name == "/quit":
            return None
        if name == "/reset":
            self.reset()
            return "a new chat"
        if name == "/system":
            self.system = rest.strip() or None
            self.reset()
            return "a new chat"
        if name == "/adapter":
            return self._change_adapter(rest.strip())
        raise ArgumentError(f"there is no command {name}", hint=f"there are\n{_HELP}")

    def _change_adapter(self, name: str) -> str:
        if not name:
            known = [f"* {n}" if n == self.adapter else f"  {n}" for n in self.model.names]
            return "\n".join(known) or "there are no adapters; /adapter FILE loads one"
        if name == _NONE:
            self.adapter = None
        elif name not in self.model.names and Path(name).exists():
            (found, path), *_ = find_adapters(Path(name)).items()
            self.model.add(found, read_adapter(path))
            self.adapter = found
        else:
            self.model.check_name(name)
            self.adapter = name
        self.reset()
        return f"a new chat, with {self.adapter or 'the base model'}"


@click.command()
@click.argument("folder", metavar="FOLDER", type=_FILE)
@click.argument("adapters", metavar="[ADAPTER]...", nargs=-1, type=_FILE)
@click.option("--system", metavar="TEXT", help="A system prompt.")
@click.option("--max-tokens", type=int, default=512, show_default=True, metavar="N",
              help="The most tokens of an answer.")  # fmt: skip
@click.option("--temperature", type=float, default=0.0, show_default=True, metavar="T",
              help="0 takes the likeliest token each time.")  # fmt: skip
@click.option("--top-p", type=float, default=1.0, show_default=True, metavar="P")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
@json_option
@traceback_option
def chat(
    folder: Path,
    adapters: tuple[Path, ...],
    system: str | None,
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int,
    as_json: bool,
) -> None:
    """Chat with the model in FOLDER and an ADAPTER, as onnxruntime-genai serves them.

    ADAPTER is a file .onnx_adapter, a folder of PEFT, what training wrote, or a folder with many;
    the first is used, /adapter changes it. Without a terminal each line of stdin is a question,
    whose answer is a line, and with --json an object. /help lists the commands.
    """
    wording = Wording(most=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    known: dict[str, Adapter] = {}
    for given in adapters:
        known |= {name: read_adapter(path) for name, path in find_adapters(given).items()}
    tokenizer = open_tokenizer(folder)
    tokenizer.render([{"role": "user", "content": "?"}], asks=True)  # is there a template?
    with _place(folder) as place:
        with working(f"Opening {folder}"):
            model = ChatModel(folder, tokenizer, Path(place), known)
        with closing(model):
            _talk(_Chat(model, next(iter(known), None), system, wording), as_json)


def _place(folder: Path) -> "TemporaryDirectory[str]":
    """A folder for what the chat needs: beside the data, where a model with slots is to be made."""
    inside = None if has_slots(open_language_model(folder)) else folder
    try:
        return TemporaryDirectory(prefix=".chat-", dir=inside, ignore_cleanup_errors=True)
    except OSError as error:
        raise BundleError(
            f"{folder}: nothing can be written there: {error.strerror}",
            hint="flow2onnx lora slots FOLDER -o NEW makes a folder that needs nothing written",
        ) from error


def _talk(talk: _Chat, as_json: bool) -> None:
    """Read lines and answer them until they end."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        click.echo(f"{talk.adapter or 'the base model'}; /help lists the commands")
    failed = False
    for line in _lines(is_terminal):
        if not line.strip():
            continue
        try:
            if line.strip() == "/help":
                click.echo(_HELP)
            elif line.startswith("/"):
                text = talk.command(line)
                if text is None:
                    break
                click.echo(text, err=not is_terminal)
            else:
                _show_answer(talk, line.strip(), as_json)
        except KeyboardInterrupt:
            click.echo("\n(broken off)", err=True)
        except FlowError as error:
            if not is_terminal:
                failed = True
            click.echo(f"{type(error).__name__}: {error}", err=True)
    if failed:
        raise SystemExit(1)


def _show_answer(talk: _Chat, line: str, as_json: bool) -> None:
    parts: list[str] = []
    for part in talk.answer(line):
        parts.append(part)
        if not as_json:
            click.echo(part, nl=False)
            sys.stdout.flush()
    if as_json:
        row: dict[str, Any] = {"prompt": line, "answer": "".join(parts), "adapter": talk.adapter}
        click.echo(json.dumps(row, ensure_ascii=False))
    else:
        click.echo()


def _lines(is_terminal: bool) -> Iterator[str]:
    """Lines that the user types, or those of stdin."""
    if not is_terminal:
        yield from sys.stdin
        return
    _use_readline()
    while True:
        try:
            yield input("> ")
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()


def _use_readline() -> None:
    """Let the arrow keys edit what is typed, where Python can."""
    with suppress(ImportError):  # Windows has none
        importlib.import_module("readline")  # which `input` uses from then on
