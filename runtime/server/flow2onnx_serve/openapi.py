"""The OpenAPI description of what the server answers over HTTP."""

from collections.abc import Sequence
from typing import Any

from flow2onnx_serve.ports import DATATYPES

__all__ = ["MOST_MODELS", "description"]

MOST_MODELS = 10**6  # whose numbers a list may begin with

Schema = dict[str, Any]

_OF_MODEL = {  # also of each version
    "": "Inputs, outputs and versions",
    "/ready": "200 while it answers",
    "/config": "Its config.pbtxt, or what would stand in it",
    "/adapters": "Its adapters with their states",
    "/stats": "What its versions have done, times in nanoseconds",
    "/infer": "Ask the model; tensors as JSON, or as binary data behind the JSON",
}
_MODEL, _VERSION = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
_SUMMARIES = {
    "/": "What is served, with example requests: a page for browsers, JSON for scripts",
    "/docs": "This description: a page for browsers, JSON for scripts",
    "/models/{model}": "A model, its numbers and an example: a page or JSON",
    "/v2": "Who answers, and which extensions of the protocol",
    "/v2/health/live": "200 while the process answers",
    "/v2/health/ready": "200 while every model that is wanted answers",
    "/v2/models/stats": "What all models have done",
    "/v2/repository/index": "Models and versions with their states and why",
    "/v2/repository/models/{model}/load": "Load a model anew, or one version of it",
    "/v2/repository/models/{model}/unload": "Let a model answer no more",
    "/metrics": "Counts and latencies for Prometheus",
    "/openapi.json": "This description",
    **{base + rest: text for base in (_MODEL, _VERSION) for rest, text in _OF_MODEL.items()},
}
_FROM = {
    "name": "from",
    "in": "query",
    "description": "the first of 20 models that are told",
    "schema": {"type": "integer", "minimum": 0, "maximum": MOST_MODELS - 1},
}

_TEXT: Schema = {"type": "string"}
_SIZE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**40}
_SHAPE: Schema = {"type": "array", "items": _SIZE, "maxItems": 8}
_DATATYPE: Schema = {"type": "string", "enum": sorted(DATATYPES.values())}


def _object(properties: Schema, *required: str) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_INPUT = _object(
    {"name": _TEXT, "datatype": _DATATYPE, "shape": _SHAPE,
     "parameters": _object({"binary_data_size": _SIZE}),
     "data": _list({"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "array"}]})},
    "name", "datatype", "shape",
)  # fmt: skip
_WANTED = _object(
    {"name": _TEXT,
     "parameters": _object({"binary_data": {"type": "boolean"}, "classification": _SIZE})},
    "name",
)  # fmt: skip
_REQUEST = _object(
    {"id": _TEXT, "inputs": _list(_INPUT), "outputs": _list(_WANTED),
     "parameters": _object({"binary_data_output": {"type": "boolean"}, "timeout": _SIZE,
                            "adapter": _TEXT})},
    "inputs",
)  # fmt: skip
_OUTPUT = _object({"name": _TEXT, "datatype": _TEXT, "shape": _SHAPE}, "name", "datatype", "shape")
_SCHEMAS: Schema = {
    "Error": _object({"error": _TEXT}, "error"),
    "InferenceRequest": _REQUEST,
    "InferenceResponse": _object(
        {"model_name": _TEXT, "model_version": _TEXT, "id": _TEXT, "outputs": _list(_OUTPUT)},
        "model_name", "outputs",
    ),
    "ServerMetadata": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)},
                              "name", "version", "extensions"),
    "ModelMetadata": _object(
        {"name": _TEXT, "versions": _list(_TEXT), "platform": _TEXT,
         "inputs": _list(_object({})), "outputs": _list(_object({}))},
        "name", "platform", "inputs", "outputs",
    ),
    "Index": _list(_object({"name": _TEXT, "version": _TEXT, "state": _TEXT, "reason": _TEXT},
                           "name")),
    "Adapters": _object({"adapters": _list(
        _object({"name": _TEXT, "state": _TEXT, "reason": _TEXT, "ranks": _list(_SIZE)},
                "name", "state", "reason"))}, "adapters"),
    "IndexRequest": _object({"ready": {"type": "boolean"}}),
    "LoadRequest": _object({"parameters": {
        **_object({"version": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}}),
        "additionalProperties": False}}),
    "UnloadRequest": _object({"parameters": _object({})}),
    "Anything": _object({}),
}  # fmt: skip


def description(version: str, models: Sequence[str], *, has_token: bool) -> Schema:
    """The description, as OpenAPI 3.1 has it, of a server that has these models."""
    security = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "flow2onnx: Open Inference Protocol v2", "version": version},
        "paths": _paths(models, has_token),
        "components": {"schemas": _SCHEMAS, **(security if has_token else {})},
    }


def _paths(models: Sequence[str], has_token: bool) -> Schema:
    known: Schema = {
        "model": {**_TEXT, "enum": list(models)} if models else {**_TEXT, "minLength": 1},
        "version": {**_TEXT, "pattern": "^[1-9][0-9]{0,8}$"},
    }
    paths: Schema = {
        "/": _get("page", has_token, 400),
        "/docs": _get("page", has_token),
        "/models/{model}": _get("page", has_token, 404),
        "/v2": _get("ServerMetadata", has_token),
        "/v2/health/live": _get(None, False),
        "/v2/health/ready": _get(None, False, 503),
        "/v2/models/stats": _get("Anything", has_token),
        "/v2/repository/index": _post("IndexRequest", "Index", has_token, 400),
        "/v2/repository/models/{model}/load": _post("LoadRequest", "Anything", has_token, 400, 404),
        "/v2/repository/models/{model}/unload":
            _post("UnloadRequest", "Anything", has_token, 400, 404),
        "/metrics": _get("text", has_token),
        "/openapi.json": _get("Anything", has_token),
    }  # fmt: skip
    for base in (_MODEL, _VERSION):
        paths[base] = _get("ModelMetadata", has_token, 404, 503)
        paths[f"{base}/ready"] = _get(None, has_token, 404, 503)
        paths[f"{base}/config"] = _get("Anything", has_token, 404, 503)
        paths[f"{base}/adapters"] = _get("Adapters", has_token, 404, 503)
        paths[f"{base}/stats"] = _get("Anything", has_token, 404, 503)
        paths[f"{base}/infer"] = _post(
            "InferenceRequest", "InferenceResponse", has_token, 400, 404, 408, 413, 503, 504
        )
    paths["/"]["parameters"] = [_FROM]
    for path, item in paths.items():
        for operation in item.values():
            if isinstance(operation, dict):  # not the parameters
                operation["summary"] = _SUMMARIES[path]
        names = [n for n in ("model", "version") if f"{{{n}}}" in path]
        if names:
            item["parameters"] = [
                {"name": n, "in": "path", "required": True, "schema": known[n]} for n in names
            ]
    return paths


def _get(answer: str | None, has_token: bool, *errors: int) -> Schema:
    return {"get": _operation(answer, has_token, errors)}


def _post(asked: str, answer: str, has_token: bool, *errors: int) -> Schema:
    body = {"content": {"application/json": {"schema": _reference(asked)}}}
    if asked == "InferenceRequest":
        body["required"] = True  # type: ignore[assignment]  # one object, values of two kinds
    return {"post": {"requestBody": body, **_operation(answer, has_token, errors)}}


def _operation(answer: str | None, has_token: bool, errors: tuple[int, ...]) -> Schema:
    codes = (*errors, 401) if has_token else errors
    refused = {"content": {"application/json": {"schema": _reference("Error")}}}
    found: Schema = {
        "responses": {
            "200": {"description": "the answer", **_content(answer)},
            **{str(code): {"description": "refused", **refused} for code in sorted(codes)},
        }
    }
    return {**found, "security": [{"token": []}]} if has_token else found


def _content(answer: str | None) -> Schema:
    if answer is None:
        return {}
    if answer == "page":
        return {"content": {"application/json": {"schema": {}}, "text/html": {"schema": _TEXT}}}
    if answer == "text":
        return {"content": {"text/plain": {"schema": _TEXT}}}
    content = {"application/json": {"schema": _reference(answer)}}
    if answer == "InferenceResponse":
        content["application/octet-stream"] = {"schema": {}}
    return {"content": content}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
