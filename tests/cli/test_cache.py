"""`flow2onnx cache`: what is kept, and how it goes."""

import json
import os

import pytest

from flow2onnx.analysis.live_range import CallSizes
from flow2onnx.engine.opening_cache import KeptOpening, OpeningCache


@pytest.fixture
def kept(folder, monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_CACHE", str(folder / "kept"))
    cache = OpeningCache.of_user()
    kept = KeptOpening(
        job="train_job", model=b"model", graph=b"graph", native={}, in_place=(),
        sizes=CallSizes(0, 0, 0, 0),
    )  # fmt: skip
    cache.write("a", kept)
    os.utime(folder / "kept" / "a.opening", (0, 0))
    return cache


def test_a_table_of_what_is_kept(flow2onnx, kept):
    result = flow2onnx("cache")
    assert result.exit_code == 0, result.stderr
    assert str(kept.folder) in result.stdout
    assert "train_job" in result.stdout
    assert "d ago" in result.stdout
    facts = json.loads(flow2onnx("cache", "--json").stdout)
    assert [row["job"] for row in facts["openings"]] == ["train_job"]


def test_all_of_it_goes(flow2onnx, kept):
    assert "1 opening removed" in flow2onnx("cache", "--clear").stdout
    assert kept.entries() == []
    assert "nothing is kept yet" in flow2onnx("cache").stdout


def test_off(flow2onnx, monkeypatch):
    monkeypatch.setenv("FLOW2ONNX_CACHE", "off")
    assert "nothing is kept" in flow2onnx("cache").stdout
    assert json.loads(flow2onnx("cache", "--json").stdout) is None
