"""Limits of models: the same numbers, counts and words in Python, JavaScript and C."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from flow2onnx_runtime import BundleError
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.model_limits import LIMITS
from onnx import parser

from tests.hostile.models import case
from tests.runtimes import c_driver, test_js

ROOT = Path(__file__).parents[2]
C = ROOT / "runtime" / "c" / "src" / "limits.c"
CONTRACT = (ROOT / "runtime" / "CONTRACT.md").read_text()
COUNTED = re.compile(r"\S+ [^:]+; \d+ are the most")


def test_the_contract_has_the_numbers():
    rows = dict(re.findall(r"^  \| `(\w+)` \| (\d+) \|", CONTRACT, re.M))
    assert {name: int(most) for name, most in rows.items()} == asdict(LIMITS)


def test_c_has_the_numbers():
    rows = re.findall(r"^#define MOST_(\w+) (\d+)u$", C.read_text(), re.M)
    assert {name.lower(): int(most) for name, most in rows} == asdict(LIMITS)


_CASES = 28  # of a round: all kinds that there are, and no more on the disk at a time
_ROUNDS = [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 18))]


@pytest.fixture(scope="module", params=_ROUNDS)
def corpus(tmp_path_factory, request):
    """Some hostile models, and what Python counts too much of in each; "" where it is nothing."""
    folder, found = tmp_path_factory.mktemp("corpus"), {}
    for number in range(_CASES * request.param, _CASES * (request.param + 1)):
        name, content = case(number, seed=5)
        path = folder / f"{name}.onnx"
        path.write_bytes(content)
        found[path] = counted(_complaint(path))
    assert sum(map(bool, found.values())) > _CASES / 4
    yield found
    for path in found:
        path.unlink()


def _complaint(path):
    try:
        check_model(path.read_bytes())
    except BundleError as error:
        return str(error)
    return ""


def counted(text):
    """The count in a refusal."""
    found = COUNTED.search(text.partition("cannot be opened: ")[2])
    return found.group() if found else ""


SCRIPT = """
import { readFileSync } from "node:fs";
import { LIMITS, checkModel } from "./src/model_limits.js";
import { BundleError } from "./src/index.js";
const found = process.argv.slice(1).map((path) => {
  try {
    checkModel(path, new Uint8Array(readFileSync(path)), []);
    return "";
  } catch (error) {
    if (!(error instanceof BundleError)) throw error;
    return error.message;
  }
});
console.log(JSON.stringify([LIMITS, found]));
"""


class TestJavaScript:
    pytestmark = test_js.pytestmark

    def test_counts(self, corpus):
        limits, said = json.loads(test_js.node(SCRIPT, *corpus))
        assert limits == asdict(LIMITS)
        assert dict(zip(corpus, map(counted, said), strict=True)) == corpus


class TestC:
    pytestmark = c_driver.MARKS

    def test_counts(self, corpus, plain_build):
        found = c_driver.Driver(plain_build)
        for path, wanted in corpus.items():
            assert counted(found.say("predictor", path)) == wanted, path
        found.close()

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc")
    def test_a_result_takes_memory_when_it_is_computed(self, plain_build, tmp_path):
        """Two gigabytes by their fixed size, of a model of a few bytes."""
        model = parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[1,2,6,6] x) => (float[1,2,n,n] y) '
            "<float[2,2,3,3] v = {" + ",".join(["1"] * 36) + "}> "
            "{ y = ConvTranspose <strides: ints = [3000, 3000]> (x, v) }"
        )
        size = model.graph.output[0].type.tensor_type.shape
        size.dim[2].dim_value = size.dim[3].dim_value = 5 * 3000 + 3
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        driver = c_driver.Driver(plain_build)
        driver.ok("predictor", path)
        status = Path(f"/proc/{driver.process.pid}/status").read_text()
        assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 1 << 19
        driver.close()
