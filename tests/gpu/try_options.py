"""Say what the runtime makes of options of providers.

    python -m tests.gpu.try_options < QUESTIONS

QUESTIONS are JSON: a list of lists of [provider, its options]. Of each the answer, in a list of
JSON, is the options that a session then has, by provider, or the text of the runtime's exception.
"""

import contextlib
import json
import sys

import onnxruntime as ort
from flow2onnx_runtime.plugins import is_listed
from flow2onnx_runtime.provider_checks import _PROBE, create_session

__all__ = ["answer"]


def answer(providers):
    """The options of a session on these providers, or why there is none."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    for name, _ in providers:
        is_listed(name)  # which registers a plug-in
    try:
        session = create_session(_PROBE, settings, [tuple(pair) for pair in providers])
    except Exception as error:  # whatever the runtime raises
        return f"{type(error).__name__}: {error}"
    return session.get_provider_options()


if __name__ == "__main__":
    ort.set_default_logger_severity(4)
    with contextlib.redirect_stdout(sys.stderr):
        answers = [answer(question) for question in json.load(sys.stdin)]
    print(json.dumps(answers))
