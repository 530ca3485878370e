"""Pages for browsers: the models that are served, one model, a refusal, and the way in.

Names may be anybody's. Every text is escaped, and the policy of the pages lets no script run but
their own; that script writes text, never HTML of its own making.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flow2onnx_runtime.view.tables import escape

from flow2onnx_serve.overview import MODELS_SHOWN

__all__ = ["HEADERS", "document", "error_page", "home_page", "model_page", "sign_in_page"]

_FOLDER = Path(__file__).parent
_SCRIPT, _STYLE = ((_FOLDER / name).read_text("utf-8") for name in ("page.js", "page.css"))
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 3h12v3H6v2h6v3H6v3H2z' fill='%232f6fb4'/%3E%3C/svg%3E"
)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Nothing comes from another host, nothing is kept, and no other page may show these.
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "vary": "accept",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_PLACES = {"/": "Models", "/docs": "API", "/metrics": "Metrics"}
_LATENCIES = {"request": "whole request", "queue": "wait for a run", "run": "run"}
_MILLI, _MICRO = 1e-3, 1e-6  # seconds

Facts = Mapping[str, Any]


def document(title: str, main: str, key: str = "") -> bytes:
    """A whole page. While `key` stays the same, only its live parts change."""
    places = "".join(f'<a href="{path}">{name}</a>' for path, name in _PLACES.items())
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<link rel="icon" href="{_ICON}">',
            f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f'<header><a class="brand" href="/">flow2onnx</a><nav>{places}</nav>'
            '<span id="status" role="status"></span></header>',
            f'<main data-key="{escape(key)}">{main}</main>',
            f"<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    ).encode("utf-8", "replace")


def home_page(facts: Facts) -> bytes:
    """Every model with an example request; 20 on a page."""
    models, count = facts["models"], facts["count"]
    first = facts["first"]
    part = f", {first + 1} to {first + len(models)}" if len(models) < count and models else ""
    state = "ready" if facts["ready"] else "not ready"
    protocols = "HTTP and gRPC" if facts["grpc"] else "HTTP"
    head = (
        f"<h1>{_counted(count, 'model')}{part}</h1>"
        f'<p class="quiet">{_badge(state, facts["ready"], "server")} flow2onnx-serve '
        f"{escape(facts['version'])}, the Open Inference Protocol v2 over {protocols}</p>"
    )
    empty = "" if count else "<p>The repository has no model yet. The server looks for them.</p>"
    cards = "".join(_card(model, f"m{at}") for at, model in enumerate(models))
    before = max(first - MODELS_SHOWN, 0)
    ways = [f'<a href="/?from={before}">models before</a>'] if first else []
    ways += [f'<a href="{escape(facts["next"])}">more models</a>'] if facts["next"] else []
    return document("flow2onnx: models", f"{head}{empty}{cards}<p>{' '.join(ways)}</p>",
                    "|".join(_key(model) for model in models))  # fmt: skip


def model_page(facts: Facts) -> bytes:
    """A model: inputs, outputs, versions, adapters, latency and counts, and a form to ask it."""
    name, is_ready = facts["name"], facts["state"] == "READY"
    parts = [
        f'<p class="quiet"><a href="/">Models</a></p><h1>{escape(name)} '
        f"{_badge(facts['state'].lower(), is_ready, 'state')}</h1>",
        _section("Versions", _versions(facts["versions"]), "versions"),
    ]
    if is_ready:
        parts += [_tensors("Inputs", facts["inputs"]), _tensors("Outputs", facts["outputs"])]
    parts += [
        _section("Requests", _counts(facts), "counts"),
        _section("Latency", _latency(facts), "latency"),
    ]
    if facts["adapters"]:
        parts.append(_section("Adapters", _adapters(facts["adapters"]), "adapters"))
    if is_ready:
        parts += ["<h2>Ask it</h2>", _form(facts), _example(facts["example"], "x")]
    links = "".join(
        f'<a href="{escape(facts["protocol"])}{rest}">{text}</a>'
        for rest, text in {"": "metadata", "/config": "configuration", "/stats": "statistics",
                           "/adapters": "adapters"}.items()
    )  # fmt: skip
    parts.append(f'<p class="links quiet">As JSON: {links}</p>')
    return document(f"{name}: flow2onnx", "".join(parts), _key(facts))


def error_page(status: int, text: str) -> bytes:
    """Why a request was refused."""
    phrase = HTTPStatus(status).phrase
    return document(phrase, f"<h1>{status} {phrase}</h1><p>{escape(text)}</p>"
                            '<p><a href="/">All models</a></p>')  # fmt: skip


def sign_in_page() -> bytes:
    """A form for the token, which says nothing of what is served."""
    return document(
        "flow2onnx: a token is needed",
        "<h1>A token is needed</h1><p>The server was started with <code>--token-file</code>. "
        "The token stays in this tab and goes to this server alone.</p>"
        '<form id="sign-in"><label>Token <input type="password" name="token" required '
        'autocomplete="off"></label><button>Open</button></form>'
        '<p class="quiet">Scripts send it as <code>Authorization: Bearer TOKEN</code>.</p>'
        "<noscript><p>This form needs JavaScript.</p></noscript>",
    )


def _example(example: Facts | None, name: str) -> str:
    """A request for a shell and for Python, or why there is none."""
    if example is None:
        return ""
    if "curl" not in example:
        return f"<p>No example: {escape(example['reason'])}.</p>"
    blocks = "".join(
        f'<div class="code"><h3>{title}<button type="button" class="copy">Copy</button></h3>'
        f'<pre id="{name}-{kind}" tabindex="0"><code>{escape(example[kind])}</code></pre></div>'
        for kind, title in {"curl": "curl", "python": "Python"}.items()
    )
    return f"<details><summary>Example request</summary>{blocks}</details>"


def _key(facts: Facts) -> str:
    """The key of what a page was made for: besides, only numbers change."""
    states = [f"{row['version']} {row['state']}" for row in facts["versions"]]
    return "|".join([facts["name"], *states, *(row["name"] for row in facts["adapters"])])


def _badge(text: str, is_good: bool, name: str) -> str:
    kind = "good" if is_good else "bad"
    return f'<span class="badge {kind}" id="{name}" data-live>{escape(text)}</span>'


def _card(facts: Facts, name: str) -> str:
    numbers = [row["version"] for row in facts["versions"] if row["state"] == "READY"]
    versions = f"version {', '.join(numbers)}" if numbers else facts["versions"][0]["reason"]
    ports = ""
    if "inputs" in facts:
        sides = (", ".join(map(_brief, facts[side])) for side in ("inputs", "outputs"))
        ports = f'<p class="ports">{" <b>→</b> ".join(sides)}</p>'
    return (
        f'<section class="card"><h2><a href="{escape(facts["page"])}">{escape(facts["name"])}</a> '
        f"{_badge(facts['state'].lower(), facts['state'] == 'READY', f'{name}-state')}</h2>"
        f'<p class="quiet">{escape(versions)}</p>{ports}'
        f'<p class="quiet" id="{name}-line" data-live>{_line(facts)}</p>'
        f"{_example(facts['example'], name)}</section>"
    )


def _brief(port: Facts) -> str:
    return f"<span><code>{escape(port['name'])}</code> {port['datatype']} {_shape(port)}</span>"


def _shape(port: Facts) -> str:
    return escape(" × ".join(port["sizes"]) or "scalar")


def _line(facts: Facts) -> str:
    found = facts["latency"]["request"]
    if not found["count"]:
        return "not asked yet"
    return (f"{_counted(found['count'], 'request')}, half within {_seconds(found['p50'])}, "
            f"99 % within {_seconds(found['p99'])}")  # fmt: skip


def _section(title: str, content: str, name: str) -> str:
    return f'<section id="{name}" data-live><h2>{title}</h2>{content}</section>'


def _tensors(title: str, ports: Iterable[Facts]) -> str:
    rows = [
        [f"<code>{escape(p['name'])}</code>", p["datatype"], escape(p["dtype"]), _shape(p),
         _classes(p)]
        for p in ports
    ]  # fmt: skip
    columns = ["name", "datatype", "element type", "shape", "labels"]
    if not any(row[-1] for row in rows):
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    return f"<h2>{title}</h2>{_table(columns, rows)}"


def _classes(port: Facts) -> str:
    if "labels" not in port:
        return ""
    more = port["classes"] - len(port["labels"])
    rest = [f"and {more:,} more"] if more > 0 else []
    return escape(", ".join([*port["labels"], *rest]))


def _versions(rows: Iterable[Facts]) -> str:
    found = [
        [escape(row["version"]), escape(row["state"].lower()), _count(row.get("answered")),
         _count(row.get("failed")), _count(row.get("rows")), _count(row.get("runs")),
          _seconds(row.get("mean_seconds")), escape(row["reason"])]
        for row in rows
    ]  # fmt: skip
    columns = ["version", "state", "answered", "failed", "rows", "runs", "mean time", "notes"]
    return _table(columns, found, numbers=range(2, 7))


def _counts(facts: Facts) -> str:
    codes = [[escape(code), _count(count)] for code, count in facts["requests"].items()]
    rows = facts["rows_of_a_run"]
    told = [f"{facts['waiting']:,} waiting"]
    if rows["count"]:
        told.append(f"{rows['mean']:.3g} rows in a run on average")
    if facts.get("batch_rows", 1) > 1:
        told.append(f"up to {facts['batch_rows']} rows are computed together")
    loads = facts["loads"].items()
    told += [f"{_counted(count, 'version')} {escape(result)}" for result, count in loads]
    counted = _table(["answer", "requests"], codes, numbers=(1,)) if codes else ""
    return f'<p class="quiet">{"; ".join(told)}</p>{counted}'


def _latency(facts: Facts) -> str:
    found = facts["latency"]
    if not found["request"]["count"]:
        return '<p class="quiet">not asked yet</p>'
    rows = [
        [title, *(_seconds(found[name][column]) for column in ("mean", "p50", "p90", "p99"))]
        for name, title in _LATENCIES.items()
    ]
    times = _table(["", "mean", "50 %", "90 %", "99 %"], rows, numbers=range(1, 5))
    return (
        f"{times}{_picture(facts['histogram'])}"
        '<p class="quiet">Since the server began, refused requests too; percentiles are '
        "estimated within the bars.</p>"
    )


def _picture(buckets: Sequence[tuple[float | None, int]]) -> str:
    """How many requests took how long: a bar between each two bounds."""
    most = max(count for _, count in buckets) or 1
    bars = []
    for at, (bound, count) in enumerate(buckets):
        height = 60 * count / most if count else 0
        text = f"{count:,} up to {_seconds(bound)}" if bound else f"{count:,} above"
        label = _seconds(bound) if bound and at % 3 == 0 else "" if bound else "more"
        bars.append(
            f'<g><title>{text}</title><rect class="space" x="{at * 30}" y="0" width="30" '
            f'height="60"/><rect x="{at * 30 + 2}" y="{60 - height:.1f}" width="26" '
            f'height="{height:.1f}"/><text x="{at * 30 + 15}" y="76">{label}</text></g>'
        )
    return (
        f'<svg class="bars" viewBox="-8 0 {30 * len(buckets) + 16} 80" role="img" '
        f'aria-label="requests by latency">{"".join(bars)}</svg>'
    )


def _adapters(rows: Iterable[Facts]) -> str:
    found = [
        [f"<code>{escape(row['name'])}</code>", escape(row["state"].lower()),
         escape(", ".join(map(str, row.get("ranks", ())))), escape(row["reason"])]
        for row in rows
    ]  # fmt: skip
    use = 'A request chooses one by <code>"parameters": {"adapter": "NAME"}</code>.'
    return f"{_table(['name', 'state', 'rank', 'notes'], found)}<p>{use}</p>"


def _form(facts: Facts) -> str:
    example = facts["example"]
    text, zeros = example.get("text", ""), example.get("zeros", 0)
    behind = (
        f"<p>Behind the JSON go zeros for what <code>binary_data_size</code> announces, "
        f"{zeros:,} bytes here.</p>"
        if zeros
        else ""
    )
    return (
        f'<form class="try" data-method="POST" data-path="{escape(facts["protocol"])}/infer">'
        f"<label>Request<textarea name=body rows=10 spellcheck=false>{escape(text)}</textarea>"
        f"</label>{behind}<button>Send</button><output></output></form>"
    )


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    """A table of HTML; columns with these places hold numbers."""
    kinds = [' class="number"' if at in numbers else "" for at in range(len(columns))]
    head = "".join(f"<th{k}>{c}</th>" for k, c in zip(kinds, columns, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{k}>{c}</td>' for k, c in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    """A time in words: ``1.2 ms``; nothing of none."""
    if value is None:
        return ""
    if value < _MILLI:
        return f"{value / _MICRO:.3g} µs"
    return f"{value / _MILLI:.3g} ms" if value < 1 else f"{value:.3g} s"
