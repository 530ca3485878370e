"""The page of the API: every operation of the OpenAPI description, with a form that tries it."""

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from flow2onnx_runtime.view.tables import escape

from flow2onnx_serve.pages import document

__all__ = ["api_page"]

_GROUPS = {
    "Models": ("/v2/models",), "Repository": ("/v2/repository",), "Server": ("/v2",),
    "Pages and metrics": ("/",),
}  # fmt: skip
_MOST_NAMES = 200  # models that a form offers
_DEEPEST = 6

Schema = Mapping[str, Any]


def api_page(description: Schema, model: Schema | None) -> bytes:
    """All operations by group; forms begin with this model, which answers, and its example."""
    info = description["info"]
    groups: dict[str, list[str]] = {name: [] for name in _GROUPS}
    for at, (path, item) in enumerate(description["paths"].items()):
        for method, operation in _operations(item):
            found = _operation(f"{method}-{at}", method, path, item, operation, description, model)
            groups[_group(path)].append(found)
    sections = "".join(f"<h2>{name}</h2>{''.join(found)}" for name, found in groups.items())
    token = (
        "<p>Every request but those of health needs <code>Authorization: Bearer TOKEN</code>.</p>"
        if "securitySchemes" in description["components"]
        else ""
    )
    head = (
        f"<h1>API</h1><p>{escape(info['title'])}, flow2onnx-serve {escape(info['version'])}. "
        'As OpenAPI: <a href="/openapi.json">/openapi.json</a>. Clients of Triton and KServe work '
        f"as they are.</p>{token}"
    )
    return document("flow2onnx: API", f"{head}{sections}{_model_names(description)}")


def _operations(item: Schema) -> Iterator[tuple[str, Schema]]:
    return ((method, item[method]) for method in ("get", "post") if method in item)


def _group(path: str) -> str:
    return next(name for name, starts in _GROUPS.items() if path.startswith(starts))


def _operation(
    name: str,
    method: str,
    path: str,
    item: Schema,
    operation: Schema,
    description: Schema,
    model: Schema | None,
) -> str:
    asked = _body_schema(operation)
    shown = [f"<h3>Body</h3><pre>{escape(outline(asked, description))}</pre>"] if asked else []
    form = _form(method, path, item, operation, model)
    return (
        f'<details class="operation" id="{name}"><summary><span class="method {method}">'
        f"{method.upper()}</span><code>{escape(path)}</code>"
        f'<span class="quiet">{escape(operation["summary"])}</span></summary><div>'
        f"{''.join(shown)}{_answers(operation, description)}{form}</div></details>"
    )


def _body_schema(operation: Schema) -> Schema | None:
    content = operation.get("requestBody", {}).get("content", {})
    found: Schema | None = content.get("application/json", {}).get("schema")
    return found


def _answers(operation: Schema, description: Schema) -> str:
    """The answer where all is well, and the codes with which a request is refused."""
    lines, refusals = [], []
    for code, answer in operation["responses"].items():
        content = answer.get("content", {})
        if not code.startswith("2"):
            refusals.append(f"{code} {HTTPStatus(int(code)).phrase}")
            continue
        kinds = escape(" or ".join(content)) or "nothing but the code"
        lines.append(f"<h3>Answer</h3><p>{escape(code)}: {kinds}</p>")
        schema = content.get("application/json", {}).get("schema")
        if schema:
            lines.append(f"<pre>{escape(outline(schema, description))}</pre>")
    if refusals:
        error = '<code>{"error": "…"}</code>'
        lines.append(f'<p class="quiet">Refused, with {error}: {", ".join(refusals)}</p>')
    return "".join(lines)


def _form(method: str, path: str, item: Schema, operation: Schema, model: Schema | None) -> str:
    fields = [
        _field(parameter["name"], model)
        for parameter in item.get("parameters", ())
        if parameter["in"] == "path"
    ]
    if _body_schema(operation) is not None:
        text = _first_body(path, model)
        fields.append(
            '<label>Body<textarea name="body" rows="6" spellcheck="false">'
            f"{escape(text)}</textarea></label>"
        )
    return (
        f'<form class="try" data-method="{method.upper()}" data-path="{escape(path)}">'
        f"{''.join(fields)}<button>Send</button><output></output></form>"
    )


def _field(name: str, model: Schema | None) -> str:
    value = ""
    if model is not None:
        ready = [row["version"] for row in model["versions"] if row["state"] == "READY"]
        value = model["name"] if name == "model" else ready[-1]
    offered = ' list="models"' if name == "model" else ""
    return (
        f'<label>{escape(name)} <input name="{escape(name)}" value="{escape(value)}"{offered} '
        'required autocomplete="off"></label>'
    )


def _first_body(path: str, model: Schema | None) -> str:
    if not path.endswith("/infer") or model is None:
        return "{}"
    text: str = model["example"].get("text", "{}")
    return text


def _model_names(description: Schema) -> str:
    parameter = description["paths"]["/v2/models/{model}"]["parameters"][0]
    names = parameter["schema"].get("enum", ())[:_MOST_NAMES]
    options = "".join(f"<option>{escape(name)}</option>" for name in names)
    return f'<datalist id="models">{options}</datalist>'


def outline(schema: Schema, description: Schema, depth: int = 0) -> str:
    """A schema in lines as JSON would stand there; a name that may be missing ends in ``?``."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return outline(description["components"]["schemas"][name], description, depth)
    if schema.get("type") == "array":
        inner = outline(schema["items"], description, depth) if "items" in schema else ""
        return f"[{inner}, …]" if inner else "[…]"
    if schema.get("type") == "object" and schema.get("properties") and depth < _DEEPEST:
        return _object(schema, description, depth)
    return _plain(schema, description, depth)


def _object(schema: Schema, description: Schema, depth: int) -> str:
    required, indent = schema.get("required", ()), "  " * (depth + 1)
    lines = [
        f"{indent}{json.dumps(name)}{'' if name in required else '?'}: "
        f"{outline(value, description, depth + 1)}"
        for name, value in schema["properties"].items()
    ]
    return "\n".join(["{", ",\n".join(lines), "  " * depth + "}"])


def _plain(schema: Schema, description: Schema, depth: int) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(outline(each, description, depth) for each in schema["anyOf"])
    return {"object": "{…}"}.get(schema.get("type", ""), str(schema.get("type", "anything")))
