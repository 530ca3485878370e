"""The user's cache folder: what takes long to make is kept there for the next process."""

import functools
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.provider_checks import ProviderSpec, split
from flow2onnx_runtime.providers import provider_named

__all__ = ["make_folders", "user_cache", "with_caches"]

_log = logging.getLogger(__name__)


def user_cache(name: str) -> Path:
    """The path of that name in the user's cache folder, whether it is there or not."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flow2onnx" / name


def with_caches(provider: ProviderSpec) -> ProviderSpec:
    """A provider with the defaults of its row, where it can keep what these say it keeps.

    TensorRT builds an engine in minutes, and reads one in less than a second. Options that are
    given stand before the defaults; where the folder cannot be written, that is logged once.
    """
    name, given = split(provider)
    row = provider_named(name)
    if set(row.defaults) <= set(given):
        return provider
    folder = _writable_cache(row.tag)
    return provider if folder is None else (name, {**row.default_options(folder), **given})


def make_folders(providers: Iterable[ProviderSpec]) -> None:
    """Make the folders in which providers are to keep things; raises `OptionsError` for one.

    TensorRT makes the last of a path by itself, and fails to open where the others are not there.
    """
    for provider in providers:
        name, given = split(provider)
        defaults = provider_named(name).defaults
        for option in given.keys() & {o for o, value in defaults.items() if "{cache}" in value}:
            try:
                Path(given[option]).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OptionsError(
                    f"{name} is to keep things in {given[option]}, which cannot be made: "
                    f"{error.strerror}",
                    hint=f"give another folder as {option}, or set XDG_CACHE_HOME to one",
                ) from error


@functools.cache
def _writable_cache(name: str) -> Path | None:
    """The folder of that name, made where it is not there; None where it cannot be written."""
    try:
        folder = user_cache(name)
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
        reason: object = f"{folder} cannot be written"
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        reason = error
    _log.warning("what %s builds is not kept for the next process: %s", name, reason)
    return None
