"""Scripts: run as programs, or imported for the jobs in them."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from flow2onnx_runtime.spelling import did_you_mean, near_names, spelling_hint

from flow2onnx.api.job import JobFunction
from flow2onnx.cli.failures import report_errors
from flow2onnx.cli.oneflow import oneflow_names
from flow2onnx.engine import (
    Preset,
    clear_default_session,
    current_session,
    sync_default_session,
)
from flow2onnx.errors import ScriptError

__all__ = ["Target", "find_job", "opened_job", "parse_target", "run_script"]


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a script as `python` would, with `oneflow` meaning flow2onnx.

    Returns when the script and every callback it is owed have finished; what it raises comes
    through, `SystemExit` included.
    """
    code = _compile(path)
    module = _module("__main__", path)
    with _as_program(path, arguments, module), oneflow_names():
        try:
            exec(code, module.__dict__)
        except SystemExit:
            sync_default_session()
            raise
        sync_default_session()


@dataclass(frozen=True)
class Target:
    """A job of a script, ``train.py:train_job`` or ``models.mlp:train_job``; `job` is optional."""

    text: str
    place: str
    job: str | None

    @property
    def is_script(self) -> bool:
        """True if `place` is a file, False for a module."""
        return self.place.endswith(".py") or "/" in self.place or Path(self.place).is_file()


def parse_target(text: str) -> Target:
    """The target that `text` names."""
    if Path(text).is_file():
        return Target(text, text, None)
    place, _, job = text.rpartition(":")
    return Target(text, place, job) if place and job.isidentifier() else Target(text, text, None)


@contextmanager
def opened_job(target: str, arguments: Sequence[str], release: str | None) -> Iterator[JobFunction]:
    """The job that a command names, in a session of its own with the defaults of a release.

    What goes wrong inside is told as commands tell it; what the script prints while it is imported
    and traced is no result of the command, and goes to standard error.
    """
    wanted = parse_target(target)
    current_session().preset = Preset(release)
    clear_default_session()
    with (
        report_errors(Path(wanted.place) if wanted.is_script else None),
        redirect_stdout(sys.stderr),
        find_job(wanted, arguments) as job,
    ):
        yield job


@contextmanager
def find_job(target: Target, arguments: Sequence[str] = ()) -> Iterator[JobFunction]:
    """Import the target, its `__main__` part left out, and find the job in it.

    Inside, `oneflow` means flow2onnx, for the job's body is run when the job is compiled.
    """
    with oneflow_names():
        if target.is_script:
            path = Path(target.place)
            code, module = _compile(path), _module(path.stem, path)
            with _as_program(path, arguments, module):
                exec(code, module.__dict__)
                yield _job(target, module)
        else:
            with _as_program(Path.cwd() / target.place, arguments):
                yield _job(target, _import_target(target))


def _compile(path: Path) -> CodeType:
    if path.is_dir():
        raise ScriptError(f"{path} is a directory", hint="name the script in it")
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise ScriptError(f"{path} does not exist", hint=_close_files(path)) from None
    except OSError as error:
        raise ScriptError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in text:
        raise ScriptError(f"{path} is not a Python script but a binary file")
    return compile(text, str(path.absolute()), "exec", dont_inherit=True)


def _close_files(path: Path) -> str:
    names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    otherwise = f"give a script, such as {names[0]}" if names else "give the path of a script"
    near = near_names(path.name, names, most=1)
    return did_you_mean([str(path.parent / name) for name in near], otherwise)


def _module(name: str, path: Path) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path.absolute())
    return module


@contextmanager
def _as_program(
    path: Path, arguments: Sequence[str], module: ModuleType | None = None
) -> Iterator[None]:
    """`sys` as a program finds it: its arguments, its folder first on the path, its module."""
    name = "" if module is None else module.__name__
    before = sys.argv, sys.path, sys.modules.get(name)
    sys.argv = [str(path), *arguments]
    sys.path = [str(path.resolve().parent), *sys.path]
    if module is not None:
        sys.modules[name] = module
    try:
        yield
    finally:
        sys.argv, sys.path, replaced = before
        sys.modules.pop(name, None)
        if replaced is not None:
            sys.modules[name] = replaced


def _import_target(target: Target) -> ModuleType:
    try:
        return importlib.import_module(target.place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{target.place}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ScriptError(
            f"{target.place} is neither a script nor a module",
            hint="write script.py:job, or package.module:job with the package's folder here",
        ) from None


def _job(target: Target, module: ModuleType) -> JobFunction:
    jobs = _jobs(module)
    if target.job is None and len(jobs) == 1:
        return next(iter(jobs.values()))
    if target.job in jobs:
        return jobs[target.job]
    asked = "a job must be named" if target.job is None else f"no job is named {target.job}"
    raise ScriptError(f"{target.place}: {asked}", hint=_choice(target, list(jobs)))


def _jobs(module: ModuleType) -> dict[str, JobFunction]:
    session = current_session()
    defined = {name: JobFunction(session.spec(name), session) for name in session.job_names()}
    here = (value for value in vars(module).values() if isinstance(value, JobFunction))
    return defined | {job.spec.name: job for job in here}


def _choice(target: Target, jobs: list[str]) -> str:
    if not jobs:
        return (
            "importing it defines no job: one that a function or the __main__ part defines "
            "is not found"
        )
    near = spelling_hint(target.job or "", jobs, "", most=1, prefix=f"{target.place}:")
    return f"{near} its jobs are {', '.join(jobs)}".strip()
