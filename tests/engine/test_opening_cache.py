"""Openings kept on disk: read again for an equal job alone, and never in the way."""

import logging
import os
import tempfile
from dataclasses import replace

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.analysis.live_range import CallSizes
from flow2onnx.engine import opening, opening_cache
from flow2onnx.engine.opening_cache import OpeningCache
from flow2onnx.engine.session import current_session


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own for each test, for jobs of any size."""
    monkeypatch.setenv("FLOW2ONNX_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(opening_cache, "FEWEST_NODES", 1)
    return tmp_path / "kept"


@pytest.fixture
def planned(monkeypatch):
    """The openings that were made, not read."""
    made, plan = [], opening._planned
    monkeypatch.setattr(opening, "_planned", lambda *a: made.append(a) or plan(*a))
    return made


def opening_of(model, graph):
    """An opening of such content."""
    return opening_cache.KeptOpening(
        job="job", model=model, graph=graph, native={}, in_place=(), sizes=CallSizes(1, 2, 3, 4)
    )


def openings(folder):
    """The files of openings; those of programs lie beside them."""
    return sorted(folder.glob("*.opening"))


def losses(units=130, rate=0.1, **flags):
    """The losses of three steps in a session of its own, and which state is updated in place."""
    flow.clear_default_session()
    config = flow.function_config()
    for name, value in flags.items():
        getattr(config.runtime, name)(value)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((4, 130))) -> tp.Numpy:
        y = flow.layers.dense(x, units, name="first")
        loss = flow.math.reduce_mean(flow.math.square(flow.layers.dense(y, 2, name="last")))
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [rate])
        flow.optimizer.SGD(schedule, momentum=0.9).minimize(loss)
        return loss

    x = np.linspace(-1, 1, 4 * 130, dtype=np.float32).reshape(4, 130)
    found = [job(x).item() for _ in range(3)]
    name = current_session().job_names()[0]
    return found, current_session().opening(name).names_in_place


def test_an_equal_job_is_opened_from_disk(folder, planned):
    first = losses()
    assert len(planned) == 1
    (kept,) = openings(folder)
    assert losses() == first
    assert first[1], "state is updated in place, which is kept too"
    assert len(planned) == 1
    assert openings(folder) == [kept]


def test_what_decides_makes_another_opening(folder, planned, monkeypatch):
    losses()
    losses(units=131)
    losses(rate=0.2)
    losses(in_place=False)
    losses(intra_op_num_threads=1)
    losses(graph_optimization_level="basic")
    monkeypatch.setattr(opening_cache.world, "rank_threads", lambda: 1)  # among other ranks
    losses()
    assert len(planned) == 7
    assert len(openings(folder)) == 7


def test_nothing_is_kept_where_nobody_wants_it(folder, planned, monkeypatch):
    losses(opening_cache=False)
    losses(graph_optimization_level="disable")
    monkeypatch.setenv("FLOW2ONNX_CACHE", "0")
    losses()
    assert OpeningCache.of_user() is None
    assert len(planned) == 3
    assert not folder.exists()


def test_small_jobs_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr(opening_cache, "FEWEST_NODES", 1000)
    losses()
    assert not folder.exists()


@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: b"", lambda c: c[:-1] + b"\0"])
def test_a_damaged_opening_is_made_again(folder, planned, damage, caplog):
    first = losses()
    (kept,) = openings(folder)
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING):
        assert losses() == first
    assert "is damaged, and made again" in caplog.text
    assert len(planned) == 2
    assert kept.read_bytes() == whole


def test_what_cannot_be_marked_as_used_is_read(folder, planned, monkeypatch):
    first = losses()

    def refuse(*args):
        raise PermissionError("a disk that is only read")

    monkeypatch.setattr(os, "utime", refuse)
    assert losses() == first
    assert len(planned) == 1


def test_a_file_that_ends_in_its_head_is_no_entry(folder):
    folder.mkdir()
    (folder / "a.opening").write_bytes(opening_cache._MAGIC + b"\0")
    cache = OpeningCache(folder)
    assert cache.entries() == []
    assert cache.clear() == 1


def test_a_graph_that_the_runtime_refuses_is_made_again(folder, caplog):
    first = losses()
    (path,) = openings(folder)
    cache = OpeningCache(folder)
    kept = cache.read(path.stem)
    cache.write(path.stem, replace(kept, graph=b"no model"))
    with caplog.at_level(logging.WARNING):
        assert losses() == first
    assert "opens no more" in caplog.text
    assert cache.read(path.stem) == kept


def test_what_others_may_write_is_not_read(folder, planned, caplog):
    first = losses()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert losses() == first
    assert f"others may write to {folder}" in caplog.text
    assert len(planned) == 2


def test_a_link_or_a_folder_in_its_place_is_no_opening(folder):
    losses()
    (path,) = openings(folder)
    path.unlink()
    path.mkdir()
    assert OpeningCache(folder).read(path.stem) is None
    assert losses()


def test_a_folder_that_cannot_be_made_is_said(folder, caplog):
    folder.write_text("a file")
    with caplog.at_level(logging.WARNING):
        losses()
    assert "is not kept in" in caplog.text


def test_without_a_temporary_folder_nothing_is_kept(folder, monkeypatch, caplog):
    first, names = losses()
    assert names
    opening._warn_of_no_folder.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    monkeypatch.setenv("FLOW2ONNX_CACHE", "0")
    with caplog.at_level(logging.WARNING):
        assert losses() == (first, ())
        assert losses() == (first, ())
    assert caplog.text.count("no temporary folder can be written") == 1


def test_an_open_job_does_not_hold_what_was_read(planned):
    losses()
    losses()
    assert len(planned) == 1
    (executable,) = current_session()._executables.values()
    assert executable._planned.graph == executable.opening.graph == b""


def test_what_was_not_used_for_longest_goes_first(folder):
    kept = opening_of(b"m" * 400, b"g" * 400)
    cache = OpeningCache(folder, limit=2200)
    for i, key in enumerate("abc"):
        cache.write(key, kept)
        os.utime(folder / f"{key}.opening", (i, i))
    cache.write("d", kept)
    assert {path.stem for path in folder.iterdir()} == {"c", "d"}
    assert [entry.job for entry in cache.entries()] == ["job", "job"]
    assert cache.clear() == 2


def test_what_a_killed_writer_left_goes(folder):
    kept = opening_of(b"m", b"g")
    folder.mkdir()
    left = folder / ".a.opening.0123456789ab.tmp"
    left.touch()
    OpeningCache(folder).write("b", kept)
    assert [path.name for path in folder.iterdir()] == ["b.opening"]
    left.touch()
    assert OpeningCache(folder).clear() == 1
    assert not list(folder.iterdir())
