"""What browsers and scripts are told at /, /docs and /models/NAME."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from flow2onnx_runtime import Options
from flow2onnx_runtime.model_config import ModelConfig
from flow2onnx_serve.api_page import api_page, outline
from flow2onnx_serve.examples import Address, example_of
from flow2onnx_serve.loading import VersionFiles, load_version
from flow2onnx_serve.metrics import ModelMetrics
from flow2onnx_serve.negotiation import prefers_html
from flow2onnx_serve.openapi import description
from flow2onnx_serve.pages import error_page, home_page, model_page

from tests.serving import models
from tests.serving.conftest import ROOT, start, stop

CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
HTML = {"Accept": CHROME}
HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = ("/", "/docs", "/models/mlp")
TOKEN = {"Authorization": "Bearer secret"}
NODE_MODULES = ROOT / "runtime" / "js" / "node_modules"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a token, more models than a page has, and small limits."""
    folder = tmp_path_factory.mktemp("guarded")
    for i in range(20):
        models.place(folder / "models", f"m{i:02}", models.scalar())
    for name in ("mlp", HOSTILE):
        models.place(folder / "models", name, models.mlp())
    models.place(folder / "models", "wide", models.mlp(width=784))
    models.place(folder / "models", "broken", b"no model")
    (folder / "token").write_text("secret")
    limits = ("--max-body", 2000, "--token-file", folder / "token", "--linger", 0)
    running = start(folder / "models", *limits)
    running.wait_for("listening")
    yield running
    stop(running)


def told(server, path, headers=None):
    """The JSON of a page."""
    status, found, body = server.ask(path, headers=headers)
    assert status == 200
    assert found["Content-Type"] == "application/json"
    return json.loads(body)


@pytest.mark.parametrize(("accept", "is_html"), [
    (CHROME, True), ("text/html", True), ("text/*", True), ("TEXT/HTML;level=1", True),
    ("*/*", False), ("", False), ("application/json", False), ("application/json, */*", False),
    ("text/html;q=0.5, application/json", False), ("text/html, application/json", False),
    ("text/html;q=0.9, application/json;q=0.8", True), ("text/html;q=0", False),
    ("text/html;q=2", False), ("text/html;q=nan", False), (";;,,;q", False),
    ("*/*;q=0.1, text/html;q=0.2", True), ("text/html;q=0, */*", False),
])  # fmt: skip
def test_browsers_get_html_and_scripts_json(accept, is_html):
    assert prefers_html([(b"host", b"x"), (b"accept", accept.encode())]) is is_html


def test_several_headers_are_one_list():
    assert prefers_html([(b"accept", b"image/png"), (b"accept", b"text/html")])
    assert not prefers_html([])


@pytest.mark.parametrize("path", PAGES)
def test_forms_and_headers(server, path):
    for headers, kind in ((HTML, "text/html; charset=utf-8"), ({}, "application/json")):
        status, found, body = server.ask(path, headers=headers)
        assert (status, found["Content-Type"]) == (200, kind)
        assert found["Cache-Control"] == "no-store"
        assert found["Vary"] == "accept"
        again, head, nothing = server.ask(path, headers=headers, method="HEAD")
        assert (again, nothing) == (200, b"")
        assert head["Content-Type"] == kind
        if "example" not in body.decode():  # else numbers have other lengths by now
            assert head["Content-Length"] == str(len(body))
    assert server.ask(path, b"", HTML)[0] == 405


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/models/nothing"])
def test_the_policy_lets_only_the_pages_own_script_and_style_in(server, path):
    _, headers, body = server.ask(path, headers=HTML)
    text = body.decode()
    policy = headers["Content-Security-Policy"]
    for name in ("script", "style"):
        (content,) = re.findall(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert " style=" not in text
    assert not re.findall(r"\son\w+=", text)


def test_every_example_is_answered(server):
    facts = told(server, "/")
    assert facts["name"] == "flow2onnx"
    assert facts["ready"]
    names = [model["name"] for model in facts["models"]]
    assert names == sorted({path.name for path in server.path.iterdir()})
    for model in facts["models"]:
        example = model["example"]
        assert "curl" in example, model["name"]
        python = run([sys.executable, "-I", "-c", example["python"]], server.path)
        assert f"'model_name': '{model['name']}'" in python
        if shutil.which("curl"):
            run(["bash", "-euo", "pipefail", "-c", example["curl"]], server.path.parent, python)


def run(command, folder, expected=None):
    """The output of an example, which is the same as that of Python."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if expected is not None and done.stdout:
        assert str(json.loads(done.stdout)) == expected.strip()
    elif expected is not None:  # binary data, which goes into a file
        assert (folder / "answer.bin").read_bytes().startswith(b'{"model_name"')
    return done.stdout


def test_numbers_are_live(server):
    before = told(server, "/models/scalar")
    for given in (1.5, "no number"):
        body = {"inputs": [{"name": "x", "shape": [], "datatype": "FP32", "data": [given]}]}
        server.post("/v2/models/scalar/infer", body)
    after = told(server, "/models/scalar")
    assert after["requests"]["200"] == before["requests"].get("200", 0) + 1
    assert after["latency"]["request"]["count"] > before["latency"]["request"]["count"]
    assert 0 < after["latency"]["run"]["p50"] <= after["latency"]["run"]["p99"] < 60
    assert after["versions"][0]["answered"] == before["versions"][0]["answered"] + 1
    text = server.ask("/models/scalar", headers=HTML)[2].decode()
    assert f'<td>200</td><td class="number">{after["requests"]["200"]}</td>' in text


def test_a_model_tells_inputs_outputs_versions_and_labels(server):
    facts = told(server, "/models/mlp")
    assert facts["inputs"] == [{"name": "x", "datatype": "FP32", "dtype": "float32",
                                "shape": [-1, 16], "sizes": ["batch", "16"]}]  # fmt: skip
    assert facts["outputs"][0]["labels"] == ["ant", "bee", "cat", "dog"]
    assert facts["batch_rows"] == 8
    both = told(server, "/models/both")
    assert [row["version"] for row in both["versions"]] == ["1", "2"]
    text = server.ask("/models/mlp", headers=HTML)[2].decode()
    for shown in ("batch × 16", "float32", "FP32", "ant, bee, cat, dog", "up to 8 rows"):
        assert shown in text


def test_the_description_as_a_page(server):
    described = told(server, "/docs")
    assert described == told(server, "/openapi.json")
    operations = [op for item in described["paths"].values() for m, op in item.items()
                  if m in ("get", "post")]  # fmt: skip
    assert all(operation["summary"] for operation in operations)
    text = server.ask("/docs", headers=HTML)[2].decode()
    assert text.count('class="operation"') == len(operations)
    assert outline(described["components"]["schemas"]["Error"], described) == (
        '{\n  "error": string\n}'
    )


class Elements(HTMLParser):
    """The elements of a page, and the names of their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, [name for name, _ in attrs]))


def spoilt(value):
    """JSON whose texts, keys too, are markup, but those that choose what is shown."""
    if isinstance(value, dict):
        return {k: spoilt(v) if k not in ("state", "datatype") else v for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(each) for each in value]
    return f"\"><script>alert(1)</script>'{value}" if isinstance(value, str) else value


def test_every_text_is_escaped(server):
    facts, model = told(server, "/"), told(server, "/models/mlp")
    for page, value in ((home_page, facts), (model_page, model)):
        plain, hostile = (page(v).decode() for v in (value, spoilt(value)))
        assert Elements(hostile).found == Elements(plain).found
    described = description("1", [HOSTILE], has_token=False)
    plain, hostile = (api_page(described, m).decode() for m in (model, spoilt(model)))
    assert Elements(hostile).found == Elements(plain).found
    assert ("img", ["src", "onerror"]) not in Elements(plain).found
    assert HOSTILE not in error_page(404, HOSTILE).decode()


def test_characters_that_nobody_sees_are_dots(server):
    facts = told(server, "/models/mlp") | {"name": "a\u202eb\ud800"}
    assert "<h1>a·b· " in model_page(facts).decode()


@pytest.mark.parametrize(("path", "status", "text"), [
    ("/models/nothing", 404, "unknown model: &#x27;nothing&#x27;"), ("/x", 404, "Not Found"),
    ("/?from=x", 400, "from is &#x27;x&#x27;"), ("/?from=-1", 400, "from is"),
])  # fmt: skip
def test_refusals(server, path, status, text):
    found, headers, body = server.ask(path, headers=HTML)
    assert (found, headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert text in body.decode()
    found, headers, body = server.ask(path)
    assert (found, headers["Content-Type"]) == (status, "application/json")
    assert json.loads(body)["error"]


def test_the_protocol_has_no_pages(server):
    status, headers, body = server.ask("/v2/models/nothing", headers=HTML)
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert json.loads(body)


def test_nothing_is_told_without_the_token(guarded):
    pages = {}
    for path in ("/", "/docs", "/models/mlp", "/models/nothing", "/v2/models/mlp"):
        status, headers, pages[path] = guarded.ask(path, headers=HTML)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert headers["Cache-Control"] == "no-store"
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        status, headers, _ = guarded.ask(path)
        assert (status, headers["Content-Type"]) == (401, "application/json")
    assert len(set(pages.values())) == 1
    assert "mlp" not in pages["/"].decode()
    assert guarded.ask("/", headers=HTML, method="HEAD")[0] == 401
    assert guarded.ask("/v2/models/mlp/infer", b"{}", HTML)[1]["Content-Type"] == (
        "application/json"
    )


def test_examples_name_the_token_but_do_not_tell_it(guarded):
    facts = told(guarded, "/models/mlp", TOKEN)
    for kind in ("curl", "python"):
        assert "TOKEN" in facts["example"][kind]
        assert "secret" not in facts["example"][kind]
    command = ["bash", "-c", facts["example"]["curl"]]
    if shutil.which("curl"):
        environment = os.environ | {"TOKEN": "secret"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["model_name"] == "mlp"


def test_models_that_do_not_fit_on_a_page(guarded):
    first = told(guarded, "/", TOKEN)
    assert (first["count"], len(first["models"]), first["next"]) == (24, 20, "/?from=20")
    second = told(guarded, first["next"], TOKEN)
    assert second["next"] is None
    names = [model["name"] for facts in (first, second) for model in facts["models"]]
    assert names == sorted(names)
    assert len(names) == 24
    assert told(guarded, "/?from=99", TOKEN)["models"] == []
    text = guarded.ask("/?from=20", headers=HTML | TOKEN)[2].decode()
    assert 'href="/?from=0"' in text
    assert "24 models, 21 to 24" in text


def test_a_model_that_does_not_answer_tells_why(guarded):
    facts = told(guarded, "/models/broken", TOKEN)
    assert facts["state"] == "UNAVAILABLE"
    assert facts["example"] is None
    text = guarded.ask("/models/broken", headers=HTML | TOKEN)[2].decode()
    assert "cannot be opened" in text
    assert "Ask it" not in text
    assert not told(guarded, "/", TOKEN)["ready"]


def test_a_request_above_the_limit_is_no_example(guarded):
    example = told(guarded, "/models/wide", TOKEN)["example"]
    assert re.fullmatch(r"a request takes \d+ bytes, --max-body allows 2000", example["reason"])
    status, _, body = guarded.ask("/models/wide", headers=HTML | TOKEN)
    assert status == 200
    assert example["reason"] in body.decode()


def test_examples_of_models_that_could_not_be_tried(tmp_path):
    path = models.place(tmp_path, "mlp", models.mlp()) / "model.onnx"
    version = load_version(1, VersionFiles(path), ModelConfig(), Options(), None, 8, None)
    known, unknown = example_of(version), example_of(replace(version, proven=None))
    assert known.request["inputs"][0]["shape"] == unknown.request["inputs"][0]["shape"] == [1, 16]
    hosted = Address("https", "models.example:8443", has_token=False)
    assert "https://models.example:8443/v2/models/it%27s/infer" in known.curl(hosted, "it's")


def test_quantiles():
    seconds = ModelMetrics().seconds
    assert seconds.summary() == {"count": 0, "mean": None, "p50": None, "p90": None, "p99": None}
    for value in (0.0015, 0.0015, 0.0015, 0.3):
        seconds.observe(value)
    assert seconds.quantile(0.5) == pytest.approx(0.001 + 0.0015 * 2 / 3)
    assert seconds.quantile(0.99) == pytest.approx(0.25 + 0.25 * 0.96)
    seconds.observe(100)
    assert seconds.quantile(1) == 30.0
    assert seconds.summary()["mean"] == pytest.approx(100.3045 / 5)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.skipif(
    not (NODE_MODULES / "playwright-core").is_dir(), reason="`make tools` installs playwright-core"
)
def test_in_chromium(tmp_path, serving):
    path = models.repository(tmp_path / "models")
    models.place(path, HOSTILE, models.mlp(5))
    (tmp_path / "token").write_text("secret")
    addresses = [f"http://{serving(path, '--linger', 0, *arguments).http}"
                 for arguments in ((), ("--token-file", tmp_path / "token"))]  # fmt: skip
    shutil.copy(ROOT / "tests" / "serving" / "pages.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)  # where modules are looked for
    pictures = [given] if (given := os.environ.get("SCREENSHOTS")) else []
    command = ["node", "pages.mjs", *addresses, "secret", *pictures]
    environment = os.environ | {"CHROMIUM": CHROMIUM}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
