"""The session of the program, as the fronts reach it: the first to ask loads the engine."""

from flow2onnx import engine

__all__ = ["clear_default_session", "current_session", "sync_default_session"]


def current_session() -> "engine.Session":
    """The session that definitions and calls go to."""
    return engine.current_session()


def clear_default_session() -> None:
    """Wait for outstanding work; forget jobs and variables; begin a new session."""
    engine.clear_default_session()


def sync_default_session() -> None:
    """Wait until everything that was called has finished."""
    engine.sync_default_session()
