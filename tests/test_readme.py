"""The README's blocks: its Python runs as one file; `make readme` runs the commands too."""

import re

from tests.first_hour import Step, page
from tests.readme import ROOT, Block, blocks, scripts
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


def test_the_page_of_a_first_hour():
    long = "\n".join(["https://registry.example/simple", "npm warn x", *map(str, range(20)),
                      "at http://localhost:8000/", "x" * 300])  # fmt: skip
    steps = [Step("one", Block("sh", "one\n"), 3.0, long), Step("two", Block("", ""), 60.0, "",
             ("a_b.png",))]  # fmt: skip
    text = page(steps, 2_000_000)
    assert "| one | 3.0 s | 0.1 min |\n| two | 60.0 s | 1.1 min |" in text
    assert "has 2 MB" in text
    assert "## 1. one\n\n```sh\none\n```\n\n```text\n…\n8\n" in text
    assert "![a b](pictures/first_hour/a_b.png)" in text
    assert "registry" not in text
    assert "npm" not in text
    assert "http://localhost:8000/" in text
    assert max(map(len, text.splitlines())) <= 140
