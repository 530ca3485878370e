"""The table of all symbols, and its place in COMPATIBILITY.md."""

from pathlib import Path

from flow2onnx.api.aliases import ALIASES
from flow2onnx.api.differences import DIFFERENCES
from flow2onnx.api.status import SECTION, markdown, status_table
from flow2onnx.api.surface import NAMES
from flow2onnx.api.unsupported import UNSUPPORTED
from flow2onnx.trace.symbols import symbols

DOCUMENT = Path(__file__).parents[2] / "COMPATIBILITY.md"


def test_every_symbol_once():
    assert [row.name for row in status_table()] == sorted(symbols())


def test_states():
    found = {row.name: row for row in status_table()}
    assert (found["nn.relu"].state, found["nn.relu"].releases) == ("same", "a–0.6")
    assert found["optimizer.LAMB"].state == "differs"
    assert found["fixed_placement"].note == "of `scope.placement`"
    assert "flow.gather" in found["local_gather"].note
    assert all(row.note for row in found.values() if row.state not in ("same", "not yet"))


def test_every_difference_is_of_a_symbol_that_is_here():
    others = {*UNSUPPORTED, *(a.old for a in ALIASES)}
    for name in DIFFERENCES:
        assert name in symbols()
        assert name in NAMES
        assert name not in others


def test_the_document_is_up_to_date():
    """Else: put what `python -m flow2onnx symbols --markdown` prints in place of the section."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text[text.index(SECTION) :] == markdown()
