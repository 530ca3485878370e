"""What all tests share: every test has a session of its own."""

import sys
from pathlib import Path

import pytest

from flow2onnx.session import SESSION, Session, current_session

# tests import each other's helpers as `tests.…`, whatever directory pytest was started from
sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(autouse=True)
def session():
    """A fresh session, closed afterwards together with any that replaced it."""
    token = SESSION.set(Session())
    yield
    current_session().close()
    SESSION.reset(token)
