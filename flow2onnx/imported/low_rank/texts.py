"""Files of chats and texts as batches: which tokens count, what is padded, what shares a row."""

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import open_file

from flow2onnx.errors import ArgumentError
from flow2onnx.imported.low_rank.settings import at_least
from flow2onnx.imported.low_rank.tokens import FolderTokenizer, open_tokenizer

__all__ = ["DOCUMENTS", "IGNORED", "Text", "batches_of", "read_texts", "text_batches"]

IGNORED = -100  # the label of a token that does not count
DOCUMENTS = "documents"  # the feed that says which text of a row each token is of
_STEP = 32  # rows are padded to multiples of it, so that few lengths occur
_MARKER = "\N{OBJECT REPLACEMENT CHARACTER}0"  # in no chat
_KINDS = "messages, or prompt and completion, or text"


@dataclass(frozen=True)
class Text:
    """The tokens of a text, and for each if it counts: if the loss asks for it."""

    ids: tuple[int, ...]
    counts: tuple[bool, ...]

    def cut(self, length: int) -> "Text":
        """The first `length` tokens."""
        return Text(self.ids[:length], self.counts[:length])


def read_texts(
    path: str | os.PathLike[str], tokenizer: FolderTokenizer, *, all_tokens: bool = False
) -> list[Text]:
    """The texts of a file of JSON lines.

    A line has ``messages`` (a chat, by the folder's template), ``prompt`` and ``completion``, or
    ``text``. What counts is what the assistant writes, the completion, or all of a text; with
    `all_tokens` everything. Raises ArgumentError with the number of a line that has none of these.
    """
    with open_file(path, "give a file of JSON lines") as file:
        lines = file.read().removeprefix(codecs.BOM_UTF8).split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):  # ends of lines are these alone: texts have others
        if not line.strip():
            continue
        try:
            found.append(_text(_parse(line), tokenizer, all_tokens))
        except ArgumentError as error:
            raise ArgumentError(
                f"{os.fspath(path)}, line {number}: {error.message}",
                hint=error.hint or f"a line has {_KINDS}",
            ) from None
    counted = [t for t in found if any(t.counts[1:])]
    if not counted:
        raise ArgumentError(
            f"{os.fspath(path)} has no text of which a token counts",
            hint=f"a line has {_KINDS}; chats need an assistant's message",
        )
    return counted


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ArgumentError(f"it is no UTF-8: {error}", hint="write the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        if line.strip() == b"[":
            raise _no_lines() from None
        raise ArgumentError(f"it is no JSON: {error}") from None
    if isinstance(found, list):
        raise _no_lines()
    if not isinstance(found, dict):
        raise ArgumentError(f"it is {type(found).__name__}, no object")
    return found


def _no_lines() -> ArgumentError:
    return ArgumentError(
        "it is a list", hint="write each object on a line of its own: jq -c '.[]' FILE > LINES"
    )


def _text(row: dict[str, Any], tokenizer: FolderTokenizer, all_tokens: bool) -> Text:
    if "messages" in row:
        messages = _messages(row["messages"])
        whole = tokenizer.render(messages)
        spans = [] if all_tokens else _answers(messages, whole, tokenizer)
    elif "prompt" in row and "completion" in row:
        prompt, answer = (_checked(row[k], k) for k in ("prompt", "completion"))
        end = tokenizer.special.get("eos_token", "")
        whole, spans = prompt + answer + end, [(len(prompt), len(prompt + answer + end))]
    elif "text" in row:
        whole = _checked(row["text"], "text") + tokenizer.special.get("eos_token", "")
        spans = [(0, len(whole))]
    else:
        raise ArgumentError(f"it has {', '.join(map(repr, row)) or 'nothing'}")
    spans = [(0, len(whole))] if all_tokens else spans
    try:
        whole.encode("utf-8")
    except UnicodeEncodeError as error:  # half of a pair, such as "\ud83d" alone
        raise ArgumentError(f"it is no Unicode text: {error}", hint="write it anew") from None
    ids, places = tokenizer.encode(whole)
    return Text(tuple(ids), tuple(_is_within(place, spans) for place in places))


def _checked(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{what} is {type(value).__name__}, no text")
    return value


def _is_within(place: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    """True if a token begins in one of the spans, or ends in it with what it begins before."""
    start, end = place
    return any(first <= start < last or start < first < end <= last for first, last in spans)


def _messages(messages: object) -> list[dict[str, Any]]:
    """The messages of a chat, which are checked."""
    if not isinstance(messages, list) or not messages:
        raise ArgumentError("messages is no list of messages")
    found = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ArgumentError(f"message {i + 1} has no role")
        found.append({**message, "content": _content(message.get("content"), f"message {i + 1}")})
    return found


def _content(content: object, what: str) -> str:
    """The text of a message, which may come in parts: ``[{"type": "text", "text": "…"}]``."""
    if content is None:
        raise ArgumentError(f"{what} has no content")
    if not isinstance(content, list):
        return _checked(content, f"the content of {what}")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise ArgumentError(
                f"{what} has a part {kind!r}", hint="a language model reads parts of text alone"
            )
    return "".join(_checked(part.get("text"), f"a part of {what}") for part in content)


def _answers(
    messages: Sequence[dict[str, Any]], whole: str, tokenizer: FolderTokenizer
) -> list[tuple[int, int]]:
    """Where in the text of a chat the assistant writes."""
    spans = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.render(messages[:i], asks=True)
        after = tokenizer.render(messages[: i + 1])
        if after.startswith(before) and whole.startswith(after):
            spans.append((len(before), len(after)))
        else:
            spans.append(_span_by_marker(messages, i, whole, tokenizer))
    return spans


def _span_by_marker(
    messages: Sequence[dict[str, Any]], i: int, whole: str, tokenizer: FolderTokenizer
) -> tuple[int, int]:
    """Where a chat has message `i`, which the template writes otherwise when more follow.

    Qwen3's leaves out the thoughts of all answers but the last. Another text in its place shows
    where it begins and ends, and how it ends where nothing follows.
    """
    marked = [*messages[:i], {**messages[i], "content": _MARKER}]
    start, found, rest = tokenizer.render([*marked, *messages[i + 1 :]]).partition(_MARKER)
    tail = tokenizer.render(marked).rpartition(_MARKER)[2]
    end = len(whole) - len(rest)
    if not found or not whole.startswith(start) or not whole[len(start) :].endswith(rest):
        raise ArgumentError(
            f"the chat template writes message {i + 1} otherwise when more follow",
            hint="give one answer in a line, or prompt and completion, or count all tokens",
        )
    return len(start), end + len(tail) * rest.startswith(tail)


def text_batches(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    size: int = 1,
    length: int = 512,
    packs: bool = False,
    all_tokens: bool = False,
    one_shape: bool = False,
    seed: int = 0,
) -> list[dict[str, Array]]:
    """The batches of a file of JSON lines for a trainer of `lora`, by the tokenizer in a folder.

    The other arguments are those of `batches_of`.
    """
    texts = read_texts(path, open_tokenizer(folder), all_tokens=all_tokens)
    return batches_of(texts, size=size, length=length, packs=packs, one_shape=one_shape, seed=seed)


def batches_of(
    texts: Sequence[Text],
    *,
    size: int,
    length: int,
    packs: bool = False,
    one_shape: bool = False,
    seed: int = 0,
) -> list[dict[str, Array]]:
    """The texts as batches of `size` rows of at most `length` tokens, in an order by `seed`.

    Rows of a batch are of similar length and padded on the right. With `packs` several texts share
    a row, and ``documents`` says which token is of which. A label is the token that comes next.
    With `one_shape` all batches have the shape of the largest, filled with what counts for nothing:
    a step whose sizes are fixed takes no others.
    """
    if size < 1 or length < 2:
        raise ArgumentError(f"batches of {size} rows of {length} tokens", hint="1 row, 2 tokens")
    rng = np.random.default_rng(at_least("seed", seed, 0))
    cut = [t for t in (text.cut(length) for text in texts) if any(t.counts[1:])]
    if not cut:
        raise ArgumentError(
            f"no token counts among the first {length} of any text", hint="allow longer rows"
        )
    order = [cut[i] for i in rng.permutation(len(cut))]
    rows = list(_packed(order, length)) if packs else [[t] for t in order]
    rows.sort(key=lambda row: sum(len(t.ids) for t in row))
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    least = (len(groups[0]), _width(rows)) if one_shape else (0, 0)
    return [_batch(groups[i], packs, least) for i in rng.permutation(len(groups))]


def _packed(texts: Iterable[Text], length: int) -> Iterator[list[Text]]:
    """Rows of texts, each text in the fullest row that has room for it."""
    rows: list[tuple[int, list[Text]]] = []
    for text in sorted(texts, key=lambda t: -len(t.ids)):
        free = [i for i, (used, _) in enumerate(rows) if used + len(text.ids) <= length]
        if free:
            at = max(free, key=lambda i: rows[i][0])
            rows[at][1].append(text)
            rows[at] = rows[at][0] + len(text.ids), rows[at][1]
        else:
            rows.append((len(text.ids), [text]))
    yield from (texts for _, texts in rows)


def _width(rows: Sequence[Sequence[Text]]) -> int:
    """The number of tokens that rows are padded to."""
    return -(-max(sum(len(t.ids) for t in row) for row in rows) // _STEP) * _STEP


def _batch(rows: Sequence[Sequence[Text]], packs: bool, least: tuple[int, int]) -> dict[str, Array]:
    """A batch of `least` rows and tokens a row; rows without a text have a token without label."""
    shape = max(len(rows), least[0]), max(_width(rows), least[1])
    found = {
        "input_ids": np.zeros(shape, np.int64),
        "attention_mask": np.zeros(shape, np.int64),
        "labels": np.full(shape, IGNORED, np.int64),
    }
    documents = np.zeros(shape, np.int64)
    found["attention_mask"][len(rows) :, 0] = documents[len(rows) :, 0] = 1
    for i, row in enumerate(rows):
        start = 0
        for number, text in enumerate(row, 1):
            end = start + len(text.ids)
            found["input_ids"][i, start:end] = text.ids
            found["attention_mask"][i, start:end] = 1
            following = [t if c else IGNORED for t, c in zip(text.ids, text.counts, strict=True)]
            found["labels"][i, start : end - 1] = following[1:]
            documents[i, start:end] = number
            start = end
    return {**found, DOCUMENTS: documents} if packs else found
