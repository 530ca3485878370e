"""Log messages as JSON, one object a line."""

import io
import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

__all__ = ["log_as_json"]

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        found = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: v for name, v in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


class _Handler(logging.StreamHandler[TextIO]):
    """Loses what cannot be written: there is nowhere left to say so."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def _stderr() -> TextIO:
    """stderr without a buffer, which would try lost lines again at the exit, and fail that."""
    try:
        raw = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
    except (AttributeError, OSError):  # none, or something else in its place
        return sys.stderr
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


def log_as_json(level: int = logging.INFO) -> None:
    """Write the log messages of this process to stderr, from now on."""
    handler = _Handler(_stderr())
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
