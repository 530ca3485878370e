"""Configuration: one table of flags per job, one of settings per session, one of the environment.

A row names a setting, what it takes, its default and what it leads to. Setters, checks, session
options, notes to the user and documentation derive from the rows.
"""

from flow2onnx.config.conflicts import check_conflicts, warn_of_idle
from flow2onnx.config.effects import describe
from flow2onnx.config.flags import FLAGS
from flow2onnx.config.function_config import ExecutionConfig, FunctionConfig, function_config
from flow2onnx.config.kinds import UnknownSettingError
from flow2onnx.config.settings import CONFIG, ENV, Settings, SettingsFacade
from flow2onnx.config.table import Flag, Record, Table

__all__ = [
    "CONFIG",
    "ENV",
    "FLAGS",
    "ExecutionConfig",
    "Flag",
    "FunctionConfig",
    "Record",
    "Settings",
    "SettingsFacade",
    "Table",
    "UnknownSettingError",
    "check_conflicts",
    "flags_table",
    "function_config",
    "warn_of_idle",
]


def flags_table() -> list[dict[str, str]]:
    """Every setting as a row of text: table, name, takes, default, kind, effect, doc."""
    return [_row(table, flag) for table in (FLAGS, CONFIG, ENV) for flag in table.rows.values()]


def _row(table: Table, flag: Flag) -> dict[str, str]:
    return {
        "table": table.title,
        "name": flag.name,
        "takes": flag.type.accepts,
        "default": "unset" if flag.default is None else repr(flag.default),
        "kind": type(flag.effect).__name__,
        "effect": describe(flag.effect),
        "doc": flag.doc,
    }
