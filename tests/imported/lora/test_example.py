"""The example teaches, with a model made by seed, what it says that it teaches."""

import json
import sys

import pytest

from examples.lora import teach
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.words import write_tokenizer

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.mark.slow
def test_five_answers(tmp_path, monkeypatch, capsys):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    chats = [json.loads(line)["messages"] for line in teach.CHATS.read_text().splitlines()]
    write_tokenizer(folder.path, " ".join(m["content"] for c in chats for m in c).split())
    arguments = ["teach", str(folder.path), "--out", str(tmp_path / "out"), "--lr", "5e-3"]
    monkeypatch.setattr(sys, "argv", arguments)
    before = folder.model.read_bytes()
    teach.main()
    said = capsys.readouterr().out
    assert "what is an adapter? two thin matrices beside each weight\n" in said.split("after:")[1]
    assert "who chooses one? each request by its name\n" in said.split("after:")[1]
    assert "two thin matrices" not in said.split("after:")[0]
    assert folder.model.read_bytes() == before
    assert (tmp_path / "out" / "adapter.onnx_adapter").exists()
