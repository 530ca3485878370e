"""Each wrong program is told what was asked, what was got, what to do, and its line."""

import pytest

from tests.api.wrong_jobs import COMMANDS, PAGE, WRONG, page, told, told_on_the_command_line

PROGRAMS = [(title, wrong) for title, rows in WRONG.items() for wrong in rows]


@pytest.mark.parametrize(
    ("title", "wrong"), PROGRAMS, ids=[f"{title}-{w.line}" for title, w in PROGRAMS]
)
def test_what_a_wrong_program_is_told(title, wrong):
    found = told(wrong)
    assert found is not None, "it runs"
    assert all(text in found.message for text in wrong.says), found.message
    assert found.hint, f"no hint: {found.message}"
    assert found.line is not None, f"no line: {found.message}"
    assert (wrong.at or wrong.line) in found.line, found.line


@pytest.mark.parametrize(("arguments", "says"), COMMANDS, ids=[a for a, _ in COMMANDS])
def test_what_a_wrong_command_is_told(arguments, says):
    message = " ".join(told_on_the_command_line(arguments).split())
    assert all(text in message for text in says), message


def test_there_are_as_many_as_the_page_is_to_have():
    assert len(PROGRAMS) + len(COMMANDS) >= 85


@pytest.mark.slow
def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page()
