"""A request that a model answers, as lines for a shell and for Python."""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from flow2onnx_serve.http_encoding import dump
from flow2onnx_serve.loading import Version
from flow2onnx_serve.ports import Port
from flow2onnx_serve.synthetic import synthetic_array

__all__ = ["Address", "Example", "example_of", "model_path"]

_WRITTEN = 64  # numbers of an input that are written out
_PRINTED = 4096  # numbers of an answer that a terminal shows
_LINE = 10  # numbers of one line
_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Address:
    """How a client called the server: scheme and host, and whether it needs a token."""

    scheme: str
    host: str
    has_token: bool

    def infer(self, model: str) -> str:
        """The URL that asks a model."""
        return f"{self.scheme}://{self.host}{model_path(model)}/infer"


def model_path(model: str) -> str:
    """The path of a model in the protocol."""
    return f"/v2/models/{quote(model, safe='')}"


@dataclass(frozen=True)
class Example:
    """A request: JSON, and behind it `zeros` bytes, all zero, for inputs too long to write out.

    `saves` an answer that is binary: it is large, or JSON cannot carry it.
    """

    request: dict[str, Any]
    zeros: int
    saves: bool

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self._header) + self.zeros

    @property
    def text(self) -> str:
        """The JSON in lines."""
        return _layout(self.request, json.dumps)

    @property
    def _header(self) -> bytes:
        return dump(self.request)

    def curl(self, address: Address, model: str) -> str:
        """A command of a shell that sends it."""
        token = ['-H "Authorization: Bearer $TOKEN"'] if address.has_token else []
        save = ["--output answer.bin"] if self.saves else []
        url = shlex.quote(address.infer(model))
        if not self.zeros:
            words = ["curl --silent", url, *token, *save, "-d", shlex.quote(self.text)]
            return " ".join(words)
        length = [f"-H '{_LENGTH}: {len(self._header)}'"]
        header = shlex.quote(self._header.decode())
        sent = " ".join(["curl --silent", url, *token, *length, *save, "--data-binary @-"])
        return f"{{ printf %s {header}\n  head -c {self.zeros} /dev/zero; }} |\n  {sent}"

    def python(self, address: Address, model: str) -> str:
        """A program that sends it, without any package."""
        headers = list[str]()
        if address.has_token:
            headers.append('"Authorization": f"Bearer {os.environ[\'TOKEN\']}"')
        if self.zeros:
            headers.append(f'"{_LENGTH}": str(len(header))')
        words = ["url", "header + zeros" if self.zeros else "header"]
        words += [f"{{{', '.join(headers)}}}"] if headers else []
        lines = [
            "import json",
            *(["import os"] if address.has_token else []),
            "from urllib.request import Request, urlopen",
            "",
            f"request = {_layout(self.request, _python)}",
            "header = json.dumps(request).encode()",
            *([f"zeros = bytes({self.zeros})  # {self._parts}"] if self.zeros else []),
            f"url = {json.dumps(address.infer(model))}",
            f"with urlopen(Request({', '.join(words)})) as answer:",
            *self._show,
        ]
        return "\n".join(lines)

    @property
    def _parts(self) -> str:
        """The inputs that lie behind the JSON, for a comment."""
        names = [i["name"] for i in self.request["inputs"] if "parameters" in i]
        return f"array.tobytes() of {', '.join(map(json.dumps, names))}"

    @property
    def _show(self) -> list[str]:
        if not self.saves:
            return ["    print(json.load(answer))"]
        return [
            f'    length = int(answer.headers["{_LENGTH}"])',
            "    print(json.loads(answer.read(length)))",
            "    data = answer.read()  # the outputs, for numpy.frombuffer",
        ]


def example_of(version: Version) -> Example:
    """A request for one row, on values that the version has run on where these are known."""
    items, zeros = [], 0
    for port, array in zip(version.inputs.values(), _arrays(version), strict=True):
        item: dict[str, Any] = {
            "name": port.name,
            "shape": list(array.shape),
            "datatype": port.datatype,
        }
        if _is_written(port, array):
            items.append({**item, "data": [_number(x) for x in array.reshape(-1)]})
        else:
            size = prod(array.shape) * port.dtype.itemsize
            items.append({**item, "parameters": {"binary_data_size": size}})
            zeros += size
    request: dict[str, Any] = {"inputs": items}
    saves = _is_long(version.outputs.values())
    if saves:
        request["parameters"] = {"binary_data_output": True}
    return Example(request, zeros, saves)


def _arrays(version: Version) -> list[NDArray[Any]]:
    """An array of the protocol's shape for each input."""
    ports = list(version.inputs.values())
    if version.proven is None:
        shapes = [tuple(1 if size < 0 else size for size in port.shape) for port in ports]
        return [synthetic_array(p.dtype, s) for p, s in zip(ports, shapes, strict=True)]
    rows = slice(0, 1 if version.has_batch else None)
    proven = [array[rows] if array.ndim else array for array in version.proven]
    return [port.outer(array) for port, array in zip(ports, proven, strict=True)]


def _is_written(port: Port, array: NDArray[Any]) -> bool:
    """True for an array that is short, and that JSON can carry."""
    is_plain = port.datatype != "BF16" and (array.dtype.kind != "f" or np.isfinite(array).all())
    return is_plain and array.size <= _WRITTEN


def _is_long(outputs: Iterable[Port]) -> bool:
    """True for outputs that JSON cannot carry, or a terminal would not want."""
    ports = list(outputs)
    count = sum(prod(1 if size < 0 else size for size in port.shape) for port in ports)
    return count > _PRINTED or any(port.datatype == "BF16" for port in ports)


def _number(value: Any) -> bool | int | float:  # a scalar of any of numpy's types
    """A number as short as an example needs it."""
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    return float(f"{float(value):.4g}")


def _python(value: object) -> str:
    """A value of JSON as Python writes it: texts are written alike."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {_python(v)}' for k, v in value.items())}}}"
    return repr(value) if isinstance(value, bool) else json.dumps(value)


def _layout(request: dict[str, Any], write: Callable[[Any], str]) -> str:
    """The request in lines that can be read."""
    items = ",\n".join(f"    {_item(item, write)}" for item in request["inputs"])
    rest = [f',\n  "{k}": {write(v)}' for k, v in request.items() if k != "inputs"]
    return f'{{\n  "inputs": [\n{items}\n  ]{"".join(rest)}\n}}'


def _item(item: dict[str, Any], write: Callable[[Any], str]) -> str:
    plain = [f'"{name}": {write(value)}' for name, value in item.items() if name != "data"]
    data = [f'\n     "data": [{_list(item["data"], write)}]'] if "data" in item else []
    return f"{{{', '.join(plain)}{','.join(['', *data])}}}"


def _list(numbers: Sequence[object], write: Callable[[Any], str]) -> str:
    texts = [write(number) for number in numbers]
    lines = [", ".join(texts[at : at + _LINE]) for at in range(0, len(texts), _LINE)]
    return ",\n              ".join(lines)
