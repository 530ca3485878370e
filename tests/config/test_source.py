"""Where errors and notes point."""

import _thread
import contextlib
import os
import queue
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

import flow2onnx.source
from flow2onnx.source import user_frame


def line_of(place: str | None) -> tuple[str, int]:
    assert place is not None
    name, _, line = place.rpartition(":")
    return name, int(line)


def inside(filename: str) -> FunctionType:
    """`user_frame` called by code that claims to be in a file."""
    scope: dict[str, object] = {"user_frame": user_frame}
    exec(compile("def call():\n    return user_frame()\n", filename, "exec"), scope)
    call = scope["call"]
    assert isinstance(call, FunctionType)
    return call


def test_it_is_the_line_of_the_caller() -> None:
    first, second = (
        user_frame(),
        user_frame(),
    )
    assert line_of(second)[1] == line_of(first)[1] + 1
    assert Path(line_of(first)[0]).name == "test_source.py"


def test_frames_of_the_package_are_passed_over() -> None:
    package = os.path.dirname(flow2onnx.source.__file__)
    through = inside(os.path.join(package, "job.py"))()
    assert line_of(through)[0].endswith("test_source.py")


def test_frames_of_context_managers_are_passed_over() -> None:
    @contextlib.contextmanager
    def scope() -> Iterator[str | None]:
        yield inside(flow2onnx.source.__file__)()

    with scope() as place:
        assert Path(line_of(place)[0]).name == "test_source.py"


def test_a_neighbour_with_a_similar_name_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = os.path.dirname(os.path.dirname(flow2onnx.source.__file__))
    monkeypatch.chdir(tmp_path)
    assert inside(f"{package}_script/train.py")() == "train.py:2"


def test_files_below_the_working_directory_keep_their_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "jobs" / "train.py"
    script.parent.mkdir()
    script.write_text("from flow2onnx.source import user_frame\n\nplace = user_frame()\n")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(script))["place"] == f"jobs{os.sep}train.py:3"
    monkeypatch.chdir(tmp_path / "jobs")
    assert runpy.run_path(str(script))["place"] == "train.py:3"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert runpy.run_path(str(script))["place"] == "train.py:3"


def test_code_without_a_file_is_named_as_python_names_it() -> None:
    assert inside("<stdin>")() == "<stdin>:2"


def test_a_stack_without_a_user_has_no_place() -> None:
    found: queue.Queue[str | None] = queue.Queue()
    scope: dict[str, object] = {"user_frame": user_frame, "found": found}
    body = compile(
        "def call():\n    found.put(user_frame())\n", user_frame.__code__.co_filename, "exec"
    )
    exec(body, scope)
    _thread.start_new_thread(scope["call"], ())
    assert found.get(timeout=10) is None
