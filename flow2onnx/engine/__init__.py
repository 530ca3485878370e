"""Compiled jobs on the runtime: sessions, the queue of calls, placement, memory, explanations."""

from typing import TYPE_CHECKING

from flow2onnx_runtime.on_demand import import_on_demand

if TYPE_CHECKING:
    from flow2onnx.engine.acceleration import accelerate
    from flow2onnx.engine.explain_job import explain
    from flow2onnx.engine.explanation import Explanation
    from flow2onnx.engine.preset import Preset
    from flow2onnx.engine.session import (
        SESSION,
        Session,
        clear_default_session,
        current_session,
        sync_default_session,
    )
else:
    __getattr__ = import_on_demand(
        __name__,
        {
            "acceleration": ("accelerate",),
            "explain_job": ("explain",),
            "explanation": ("Explanation",),
            "preset": ("Preset",),
            "session": (
                "SESSION",
                "Session",
                "clear_default_session",
                "current_session",
                "sync_default_session",
            ),
        },
    )

__all__ = [
    "SESSION",
    "Explanation",
    "Preset",
    "Session",
    "accelerate",
    "clear_default_session",
    "current_session",
    "explain",
    "sync_default_session",
]
