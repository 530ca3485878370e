"""The one rule for files that decide what this process does: shared libraries, and caches.

A library can do whatever the process can, and so can everybody who may change it. So whatever names
one, an environment variable or an option, a library is loaded if

1. its path is absolute, and it is a regular file;
2. it and every folder above it, of the path as given and with links resolved, belong to root or to
   the user of this process, and nobody else may write to them. A group whose name is the owner's is
   the owner alone; a folder above the library's own may be one like /tmp, in which others remove
   nothing of theirs.

Two kinds need no rule: what an installed package has of its own, as whoever can change it can
change its code, and what the system's loader finds by a name without a folder. Where files have no
such owners, as on Windows, the first part is the rule.
"""

import os
import stat
from itertools import chain
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError

try:
    import grp
    import pwd
except ImportError:  # not on Windows
    grp = pwd = None  # type: ignore[assignment]  # their absence is tested where they are used

__all__ = ["PackageLibrary", "exposure", "trusted_library"]

_OTHERS = stat.S_IWOTH
_GROUP = stat.S_IWGRP


class PackageLibrary(str):
    """The path of a library that an installed package has of its own."""

    __slots__ = ()


def trusted_library(path: str) -> str:
    """The path, links resolved, of a library that may be loaded; that of a package as it is.

    Raises `OptionsError` for one that may not, with the file or folder that is the reason.
    """
    if isinstance(path, PackageLibrary):
        return str(path)
    if not os.path.isabs(path) or "\0" in path:
        raise _refusal(path, "it is no absolute path", "give the whole path")
    real = os.path.realpath(path)
    if not os.path.isfile(real):
        raise _refusal(path, "it is no regular file", "give the path of a shared library")
    found = exposure(path)
    if found is not None:
        raise _refusal(path, *found)
    return real


def exposure(path: str) -> tuple[str, str] | None:
    """Why others than root and this user may change a file, and what to do; None if they may not.

    The path is absolute. Raises `OSError` for a file that is not there.
    """
    if not hasattr(os, "geteuid"):
        return None
    real = os.path.realpath(path)
    places = {real: None, **dict.fromkeys(map(str, chain(_folders(path), _folders(real))))}
    found = (_exposure_of(place, is_home=place == os.path.dirname(real)) for place in places)
    return next(filter(None, found), None)


def _folders(path: str) -> tuple[Path, ...]:
    return tuple(Path(path).parents)


def _exposure_of(place: str, *, is_home: bool) -> tuple[str, str] | None:
    """Why others than root and this user may write to a file or folder, and what to do."""
    state = os.stat(place)
    if state.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to another user, number {state.st_uid}", "use a copy of yours"
    if state.st_mode & stat.S_ISVTX and stat.S_ISDIR(state.st_mode) and not is_home:
        return None
    is_shared = state.st_mode & _GROUP and not _is_private(state.st_gid, state.st_uid)
    if state.st_mode & _OTHERS or is_shared:
        return f"others may write to {place}", f"chmod go-w {place}, or use a copy elsewhere"
    return None


def _is_private(group: int, user: int) -> bool:
    """True for the group that has the name of the user, which systems make for each."""
    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(user).pw_name
    except KeyError:  # a number without a name
        return False


def _refusal(path: str, reason: str, hint: str) -> OptionsError:
    return OptionsError(f"the library {path!r} is not loaded: {reason}", hint=hint)
