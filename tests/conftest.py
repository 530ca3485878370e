"""A session of its own for each test, draws that do not depend on other tests, idle threads."""

import gc
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx.engine.session import SESSION, Session, current_session

# what one test compiled is nothing for another to find
os.environ.setdefault("FLOW2ONNX_CACHE", "0")
# tests import each other's helpers as `tests.…`, whatever directory pytest was started from
sys.path.insert(0, str(Path(__file__).parents[1]))


class SessionOptions(ort.SessionOptions):
    """Options of the runtime with which idle threads sleep, unless a test says otherwise.

    Without them a thread looks for work for 5 ms before it sleeps, which is longer than most
    sessions of tests are there, and takes that time from other tests.
    """

    def __init__(self):
        super().__init__()
        self.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.add_session_config_entry("session.inter_op.allow_spinning", "0")


ort.SessionOptions = SessionOptions


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the collector of garbage fifteen thousand tests, which stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def session():
    """A fresh session, closed afterwards together with any that replaced it."""
    token = SESSION.set(Session())
    yield
    current_session().close()
    SESSION.reset(token)


@pytest.fixture(autouse=True, scope="module")
def drawn(request):
    """The generators of a test module, each with its state when the module was imported."""
    found = [v for v in vars(request.module).values() if isinstance(v, np.random.Generator)]
    return [(g, g.bit_generator.state) for g in found]


@pytest.fixture(autouse=True)
def draws(drawn):
    """Every test draws the same numbers, whichever tests ran before it in its process."""
    for generator, state in drawn:
        generator.bit_generator.state = state
