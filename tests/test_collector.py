"""The collector is paused while compiling, and as it was afterwards."""

import gc
import threading

import pytest

from flow2onnx.compile.garbage_collection import collector_paused


@pytest.fixture(autouse=True)
def as_before():
    """Nothing is frozen within; tests/conftest.py froze what was imported."""
    was_on, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if was_frozen:
        gc.freeze()
    (gc.enable if was_on else gc.disable)()


def test_it_is_paused_within_and_on_afterwards():
    gc.enable()
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_made_is_looked_through_when_all_is():
    gc.enable()
    with collector_paused():
        made = [[i] for i in range(20_000)]
    old = {id(thing) for thing in gc.get_objects(generation=2)}
    assert all(id(thing) in old for thing in made)


def test_a_short_pause_asks_nothing_of_all_objects(monkeypatch):
    gc.enable()
    monkeypatch.setattr(gc, "get_freeze_count", None)
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_program_froze_stays_frozen():
    gc.enable()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            made = [[i] for i in range(20_000)]
        assert len(made) == 20_000
        assert gc.get_freeze_count() >= frozen - 100  # some may be gone since
    finally:
        gc.unfreeze()


def test_a_program_that_switched_it_off_keeps_it_off():
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_an_error_ends_the_pause():
    gc.enable()
    with pytest.raises(ValueError, match="within"), collector_paused():
        raise ValueError("within")
    assert gc.isenabled()


def test_the_last_of_several_threads_ends_the_pause():
    gc.enable()
    inside, leave = threading.Event(), threading.Event()

    def other():
        with collector_paused():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with collector_paused():
        thread.start()
        inside.wait()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
