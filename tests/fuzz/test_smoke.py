"""Every reader of untrusted input, given its seeds, what was found before, and mutants of both."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from flow2onnx.errors import BundleError
from tests.fuzz import __main__ as command
from tests.fuzz.c_targets import C_NAMES, build_replay, environment, inputs_of
from tests.fuzz.libfuzzer import Report, _add, _summary, dictionary
from tests.fuzz.mutations import mutants
from tests.fuzz.target import CORPUS, NAMES, CostError, corpus, execute, load, shared_scratch
from tests.runtimes.c_driver import MARKS, sanitizers_work

MUTANTS = 500
ignored = pytest.mark.filterwarnings("ignore")  # numpy's and others', of what files hold


@ignored
@pytest.mark.parametrize("name", NAMES)
def test_python(name):
    target = load(name)
    seeds = list(target.seeds())
    assert any(execute(target.run, data) for data in seeds), "no seed is accepted"
    known = corpus(name)
    for data in known:
        execute(target.run, data)
    accepted = 0
    for number, data in enumerate(mutants([*seeds, *known], target.TOKENS, MUTANTS)):
        try:
            accepted += execute(target.run, data)
        except Exception as error:
            raise AssertionError(f"mutant {number}, {data!r}: {error!r}") from error
    assert accepted < MUTANTS, "no mutant is refused"


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    if not sanitizers_work(folder):
        pytest.skip("this C compiler has no AddressSanitizer that runs here")
    return build_replay(folder)


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS) for n in C_NAMES])
def test_c(name, replay):
    target = load(inputs_of(name))
    known = [*target.seeds(), *corpus(inputs_of(name))]
    inputs = [*known, *mutants(known, target.TOKENS, 4 * MUTANTS)]
    sent = b"".join(struct.pack("<I", len(data)) + data for data in inputs)
    done = subprocess.run(
        [replay], input=sent, capture_output=True, env=environment(name), check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert int(done.stdout) == len(inputs)


def test_shared_files_are_gone_though_who_wrote_them_ends_at_once():
    code = (
        "import os; from tests.fuzz.target import scratch; "
        "(scratch() / 'a').write_bytes(b'1'); os._exit(77)"
    )
    with shared_scratch() as place:
        (folder,) = place.values()
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **place}, check=False
        )
        assert done.returncode == 77
        assert Path(folder, "a").read_bytes() == b"1"
    assert not Path(folder).exists()


def test_what_counts_as_a_crash(monkeypatch):
    def refuse(data):
        raise BundleError("it is damaged")

    assert execute(len, b"") is True
    assert execute(refuse, b"") is False
    with pytest.raises(ZeroDivisionError):
        execute(lambda data: 1 / 0, b"")
    monkeypatch.setattr("tests.fuzz.target.SECONDS", -1.0)
    with pytest.raises(CostError, match="2 bytes took"):
        execute(len, b"ab")


def test_memory_that_an_input_takes(monkeypatch):
    monkeypatch.setattr("tests.fuzz.target._peak", iter([100.0, 700.0]).__next__)
    with pytest.raises(CostError, match="600 MB"):
        execute(len, b"")


def test_what_libfuzzer_says_is_read():
    report = Report("x")
    _add(report, "#2\tINITED cov: 10 ft: 20 corp: 1/1b\n#512\tpulse  cov: 12 ft: 30 corp: 2/3b\n")
    _add(report, "#100\tDONE   cov: 11 ft: 21 corp: 1/1b\n")
    assert (report.executions, report.edges, report.features) == (612, 12, 30)
    said = _summary("INFO: Seed\n === Uncaught Python exception: ===\nKeyError: 1\n\nTraceback")
    assert said == " === Uncaught Python exception: ===\nKeyError: 1\nTraceback"


def test_tokens_are_written_for_libfuzzer(tmp_path):
    assert dictionary([b'a"\xff'], tmp_path / "d") == f"-dict={tmp_path / 'd'}"
    assert (tmp_path / "d").read_text() == '"\\x61\\x22\\xff"\n'


def test_a_target_that_is_none(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fuzz", "nothing"])
    with pytest.raises(SystemExit):
        command.main()
    assert "no target nothing; there are" in capsys.readouterr().err


def test_the_corpus_is_small():
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= set(NAMES)
    assert sum(path.stat().st_size for path in files) < 1 << 20
