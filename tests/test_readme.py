"""The README's blocks: its Python runs as one file; `make readme` runs the commands too."""

import re

from tests.readme import ROOT, blocks, scripts
from tests.test_examples import run

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FOUND = blocks(TEXT)


def test_all_code_stands_in_blocks_that_are_run():
    assert {block.language for block in FOUND} == {"sh", "python"}
    left_out = [block.title.split()[0:2] for block in FOUND if block.mark]
    assert left_out == [["make", "demo"], ["pip", "install"], ["python", "-m"]]
    rest = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert "```" not in rest
    assert re.findall(r"^(?: {4}|\t).*", rest, re.MULTILINE) == []


def test_the_first_command_installs_what_users_need_and_no_more():
    assert FOUND[0].text == "pip install ./runtime/python '.[cpu]'\n"


def test_python_runs_as_one_file(tmp_path):
    *_, (_, program) = scripts(FOUND)
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    out = run("-W", "error", "train.py", cwd=tmp_path)
    losses = [float(x) for x in re.findall(r"[\d.]+", out.splitlines()[0])]
    assert len(losses) == 20
    assert losses[0] > 2 > 0.5 > losses[-1]
    assert "2 frozen" in out
    assert {p.name for p in tmp_path.iterdir()} == {
        "train.py", "model.onnx", "bundle", "tuned", "state.safetensors",
    }  # fmt: skip


def test_marks():
    first, second, third = blocks("```sh\n# needs a key\nopen\n```\n\n```sh\n# takes long\na\n```\n"
                                  "```python\nneeds = 1\n```\n")  # fmt: skip
    assert (first.mark, second.mark, third.mark) == ("needs", "takes", "")
    assert (first.title, third.language) == ("open", "python")
