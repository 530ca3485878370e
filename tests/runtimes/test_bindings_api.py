"""The description of the C API: read rightly from the header, and nothing made of it stale."""

import json
import re
import shutil
import subprocess

import pytest

from runtime.bindings.__main__ import FILES, stale
from runtime.bindings.c_api import HEADER, ROOT, CType, HeaderError, read

API = read()


def test_nothing_generated_is_stale():
    found = [path.relative_to(ROOT).as_posix() for path in stale(API)]
    assert not found, "run: python -m runtime.bindings"
    assert all((ROOT / name).is_file() for name in FILES)


def test_each_name_of_the_header_is_described():
    """Counted in another way than it is read: what stands before a bracket, or ends a type."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    assert re.findall(r"\b(f2o_\w+)\(", text) == [f.name for f in API.functions]
    types = set(re.findall(r"\b(f2o_\w+);", text)) | set(re.findall(r"struct (f2o_\w+)", text))
    assert types == {entry.name for entry in (*API.enums, *API.structs)}
    assert set(re.findall(r"\bF2O_\w+", text)) >= {v.name for e in API.enums for v in e.values}


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler: no cc")
def test_the_compiler_reads_the_same(tmp_path):
    """Each constant has its value, each field and function its type."""
    lines = ['#include "flow2onnx_runtime.h"']
    for value in (value for enum in API.enums for value in enum.values):
        lines.append(f'_Static_assert({value.name} == {value.value}, "{value.name}");')
    for struct in API.structs:
        for field in struct.fields:
            what = f"(({struct.name} *)0)->{field.name}"
            length = field.type.length
            kind = f"{field.type} *" if length is None else f"{field.type} (*)[{length}]"
            lines.append(f'_Static_assert(_Generic(&{what}, {kind}: 1, default: 0), "{what}");')
    for f in API.functions:
        given = ", ".join(str(p.type) for p in f.parameters)
        lines.append(f"_Static_assert(_Generic(&{f.name}, {f.result} (*)({given}): 1, default: 0),"
                     f' "{f.name}");')  # fmt: skip
    source = tmp_path / "x.c"
    command = ["cc", "-std=c11", "-fsyntax-only", f"-I{HEADER.parent}", source]
    source.write_text("\n".join(lines))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    source.write_text("\n".join(lines).replace("double (*)(", "float (*)("))
    assert subprocess.run(command, capture_output=True).returncode != 0, "another type is seen"


def test_the_json_is_the_same_description():
    read_again = json.loads((HEADER.parents[1] / "bindings" / "c_api.json").read_text())
    assert [f["name"] for f in read_again["functions"]] == [f.name for f in API.functions]
    step = next(f for f in read_again["functions"] if f["name"] == "f2o_trainer_step")
    assert [p["type"] for p in step["parameters"]] == [
        "f2o_trainer *", "const f2o_tensor *", "size_t", "f2o_tensors *", "f2o_error *",
    ]  # fmt: skip
    assert step["can_fail"]
    assert step["section"] == "Trainer"
    assert step["text"].startswith("Feeds come by place or by name")


def test_types():
    names = next(f for f in API.functions if f.name == "f2o_state_read").parameters[1].type
    assert names == CType("char", True, (True, False))
    assert str(names) == "const char *const *"
    assert str(names.target) == "const char *const"
    assert names.is_target_const
    with pytest.raises(HeaderError, match="no pointer"):
        _ = CType("int").target


@pytest.mark.parametrize(
    "line",
    [
        "int f2o_x(void (*done)(int));",
        "extern int f2o_x;",
        "typedef int f2o_x;",
        "typedef struct f2o_x { int a; } f2o_y;",
        "typedef enum f2o_x { A = 1 << 2 } f2o_x;",
        "int f2o_x(unsigned int a);",
        "int f2o_x(int a)",
    ],
)
def test_a_form_that_is_unknown_is_refused(line, tmp_path):
    path = tmp_path / "x.h"
    path.write_text(f"#include <stdint.h>\nint f2o_first(int a);\n{line}\n")
    with pytest.raises(HeaderError, match=r"flow2onnx_runtime\.h:3: cannot read"):
        read(path)
