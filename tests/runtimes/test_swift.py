"""The Swift package, as far as a compiler of C reads it, and as far as text can be compared."""

import re
import shutil

import pytest

from runtime.bindings.c_api import read
from tests.runtimes.c_driver import MARKS, ROOT
from tests.runtimes.languages.language import run

API = read()
SOURCES = sorted((ROOT / "runtime" / "swift" / "Sources" / "Flow2Onnx").glob("*.swift"))

pytestmark = MARKS


def calls(text: str) -> list[tuple[str, int]]:
    """Each call of a function of C with the number of its arguments."""
    found = []
    for match in re.finditer(r"\b(f2o_\w+)\(", text):
        depth, count, place = 1, 0, match.end()
        while depth:
            depth += (text[place] in "([{") - (text[place] in ")]}")
            count += text[place] == "," and depth == 1
            place += 1
        found.append((match[1], count + (text[match.end()] != ")")))
    return found


def test_calls_have_the_arguments_of_the_header():
    """Each function that Swift calls is there, and takes as many arguments; each constant too."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCES)
    wanted = {f.name: len(f.parameters) for f in API.functions}
    types = {entry.name for entry in (*API.enums, *API.structs)}
    made = [(name, count) for name, count in calls(text) if name not in types]
    assert len(made) > 20
    assert [(n, c) for n, c in made if wanted.get(n) != c] == []
    assert set(re.findall(r"\bf2o_\w+", text)) <= wanted.keys() | types
    constants = {value.name for enum in API.enums for value in enum.values}
    assert set(re.findall(r"\bF2O_\w+", text)) <= constants


def test_kinds_and_types_have_the_numbers_of_the_header():
    errors = (SOURCES[0].parent / "Errors.swift").read_text()
    kinds = re.findall(r"^ +case (\w+)", errors.split("enum Kind")[1].split("public let")[0], re.M)
    statuses = [value.value for value in API.enum("f2o_status").values][1:]
    assert len(kinds) == len(statuses) == statuses[-1], "they count on from 1"
    tensor = (SOURCES[0].parent / "Tensor.swift").read_text().split("enum DType")[1]
    numbers, last = {}, 0
    for name, _, given in re.findall(r"(\w+)( = (\d+))?[,\n]", tensor.split("///")[0]):
        last = int(given) if given else last + 1
        numbers[name.lower()] = last
    assert numbers == {
        value.name.removeprefix("F2O_").lower(): value.value
        for value in API.enum("f2o_dtype").values
    }


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("clang"), reason="there is no clang")
def test_the_module_of_the_archive(release, tmp_path):
    """Clang imports the module as Swift does, and compiles its source to link and to load."""
    package = release / "swift" / "Sources" / "CFlow2Onnx"
    source = tmp_path / "x.c"
    source.write_text(
        "#pragma clang module import CFlow2Onnx\n"
        "int main(void) { return (int)f2o_dtype_size(F2O_FLOAT32) - 4; }\n"
    )
    run("clang", "-fsyntax-only", "-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}",
        f"-fmodule-map-file={package / 'include' / 'module.modulemap'}", source)  # fmt: skip
    for flags in ([], ["-DFLOW2ONNX_LOAD_ORT"]):
        run("clang", "-c", "-O0", *flags, f"-I{package / 'include'}", "-o", tmp_path / "x.o",
            package / "flow2onnx_runtime.c")  # fmt: skip
