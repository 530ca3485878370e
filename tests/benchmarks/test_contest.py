"""Peers side by side, as the tables measure them, on something small; no time is asserted."""

import json
import os
import sys
from types import SimpleNamespace

import onnxruntime
import pytest

from benchmarks import contest, environments, training, worker
from benchmarks.contest import MKL, Contest, Contestant, Pace, Row, Setting, fill, machine
from benchmarks.driver import Program, main
from benchmarks.environments import RECIPES, interpreter
from benchmarks.report import Grid, document, ratios
from benchmarks.training import contestants
from benchmarks.workloads import TRAINING

SMALL = "mlp:batch=3,hidden=5"
PACE = Pace(block_s=0.01, peer_s=0.02, fewest=3, most=3)
OURS = Contestant("flow2onnx", "flow2onnx")


@pytest.fixture
def torch_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments.importlib.util, "find_spec", lambda name: None)


def measure(*who, task="training", work=SMALL):
    contest = Contest(PACE)
    return contest, contest.measure("small", Setting(task, work), [OURS, *who])


def test_two_peers_in_turn_and_two_that_do_not_run():
    again = Contestant("again", "flow2onnx")
    broken = Contestant("broken", "flow2onnx", model="x", reason="left out: a reason")
    unknown = Contestant("unknown", "nothing")
    contest, (ours, same, absent, failed) = measure(again, broken, unknown)
    for row in (ours, same):
        assert row.blocks == 3
        assert row.quartiles[0] <= row.ms <= row.quartiles[1]
        assert row.peak_mb > 10
        assert row.first_step_s > 0
    assert ours.ratio == 1
    assert absent.note == "left out: a reason"
    assert failed.note.startswith("ended: ModuleNotFoundError")
    assert "onnxruntime" in contest.versions["flow2onnx"]


def test_nobody_runs_when_ours_fails():
    contest = Contest(PACE)
    setting = Setting("prediction", SMALL)
    rows = contest.measure("small", setting, [OURS, Contestant("other", "flow2onnx")])
    assert rows[0].note.startswith("ended: AttributeError")  # it has no such task
    assert rows[1].note == "not run: ours failed"
    assert rows[1].ms is None


def test_other_results_are_not_timed(monkeypatch):
    monkeypatch.setattr("benchmarks.contest._difference", lambda *_: "not timed: it computes 1")
    _, (ours, other) = measure(Contestant("again", "flow2onnx"))
    assert ours.ms is not None
    assert (other.ms, other.note) == (None, "not timed: it computes 1")


@pytest.mark.parametrize(
    ("results", "says"),
    [([1.0, 2.0], ""), ([1.0, 2.001], "not timed: it computes"), ([1.0, float("nan")], "not")],
)
def test_results_are_compared(results, says):
    from types import SimpleNamespace

    from benchmarks.contest import _difference

    def peer(values):
        return SimpleNamespace(facts={"results": values, "differs": None})

    assert _difference(peer(results), peer([1.0, 2.00001]), 1e-4).startswith(says)
    assert bool(_difference(peer(results), peer([1.0, 2.00001]), 1e-4)) == bool(says)


def test_predictions_of_one_file(tmp_path):
    from benchmarks.peers.flow2onnx import export

    export("lenet:batch=2", tmp_path / "m.onnx")
    contest, model = Contest(PACE), str(tmp_path / "m.onnx")
    rows = contest.measure(
        "small", Setting("prediction", "lenet:batch=2"),
        [Contestant("ours", "predictor", model=model),
         Contestant("bare", "onnxruntime", model=model)],
    )  # fmt: skip
    assert [row.note for row in rows] == ["", ""]
    assert all(row.ms is not None for row in rows)


def test_a_missing_environment_is_told(torch_is_missing):
    _, (_, row) = measure(Contestant("torch", "torch"))
    assert row.note == "not installed: python -m benchmarks.environments torch"
    assert interpreter("flow2onnx") == sys.executable


def test_a_peer_of_this_python_finds_what_this_process_finds(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "ROOT", tmp_path)  # so that no peer has an environment
    specs = {"jax": "a spec"}
    monkeypatch.setattr(environments.importlib.util, "find_spec", specs.get)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("beside", "/absolute")))
    here, elsewhere = (
        contest.environment_of(Contestant(peer, peer), "folder") for peer in ("jax", "torch")
    )
    assert interpreter("jax") == sys.executable
    assert here["PYTHONPATH"].split(os.pathsep)[1:] == [os.path.abspath("beside"), "/absolute"]
    assert "/absolute" not in elsewhere["PYTHONPATH"]
    assert here["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert here["FLOW2ONNX_CACHE"] == "0", "no first step finds what another run has kept"


def test_a_version_is_that_of_the_module_whichever_distribution_has_it(monkeypatch):
    monkeypatch.setattr(worker, "version", lambda package: "of the distribution")
    assert worker.version_of("onnxruntime") == onnxruntime.__version__
    assert worker.version_of("a-package") == "of the distribution"


def test_every_peer_of_the_table_has_an_environment():
    peers = {w.peer for row in TRAINING for w in contestants(row, "", takes_all=True)}
    # ours with native operators takes part where they are; the rest have tables of their own
    others = {"native", "ranks", "peft"}
    assert {environments.recipe_of(p) for p in peers} - {None} | others == RECIPES.keys()


def test_an_unusable_python_is_refused(monkeypatch):
    monkeypatch.setenv("BENCH_PYTHON", os.devnull)
    with pytest.raises(SystemExit, match=r"oneflow needs Python 3\.10 or 3\.9 or 3\.8"):
        environments._base("oneflow", environments.Recipe((), ("3.10", "3.9", "3.8")))


def test_the_program_writes_numbers_page_and_chart(tmp_path, monkeypatch, capsys):
    table = {"tiny": ("a small perceptron", SMALL)}

    def two(row, folder, *, takes_all):
        return iter([OURS, Contestant("again", "flow2onnx"), Contestant("no", "x", reason="no")])

    program = Program("training", "Title", table, (MKL,), two)
    arguments = ["training", "--threads", "1", "--quick", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    main(program, training.__doc__)
    found = json.loads((tmp_path / "training.json").read_text())
    assert [row["peer"] for row in found["rows"]] == ["flow2onnx", "again", "no"]
    assert found["machine"]["cores"] == os.cpu_count()
    text = (tmp_path / "training.md").read_text()
    assert "MKL takes a slow path" in text
    assert "- tiny: a small perceptron" in text
    assert "again" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert (tmp_path / "training.svg").read_text().startswith("<?xml")


def test_rows_are_added_to_those_of_this_machine(tmp_path, monkeypatch):
    table = {"first": ("one", SMALL), "second": ("two", SMALL)}
    program = Program("training", "Title", table, (), lambda row, folder, takes_all: iter([OURS]))

    def measure_nothing(contest, name, setting, who):
        row = Row(name, setting.threads, who[0].label, ms=1.0, busy_ms=1.0, ratio=1.0)
        contest.rows.append(row)
        contest.versions["flow2onnx"] = {"numpy": "2"}
        return [row]

    def add(row, *more):
        arguments = ["training", "--threads", "1", "--rows", row, "--out", str(tmp_path), *more]
        monkeypatch.setattr(sys, "argv", arguments)
        main(program, "")
        return json.loads((tmp_path / "training.json").read_text())

    monkeypatch.setattr(Contest, "measure", measure_nothing)
    add("second")
    found = add("first", "--add")
    assert [row["workload"] for row in found["rows"]] == ["first", "second"]
    assert found["workloads"] == {"first": "one", "second": "two"}
    assert [row["workload"] for row in add("second", "--add")["rows"]] == ["first", "second"]
    for key, value, says in (
        ("versions", {"flow2onnx": {"numpy": "1"}}, "measure them all again"),
        ("machine", {"cores": 0}, "has the machine .*nothing can be added"),
    ):
        (tmp_path / "training.json").write_text(json.dumps(found | {key: value}))
        with pytest.raises(SystemExit, match=says):
            add("first", "--add")


def test_an_unknown_row_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["training", "--rows", "mlp,alexnet"])
    with pytest.raises(SystemExit):
        main(training.PROGRAM, "")
    assert "there is no row alexnet; there are mlp, lenet" in capsys.readouterr().err


def test_a_ratio_is_of_blocks_of_one_turn() -> None:
    def peer(*times: float) -> SimpleNamespace:
        facts = {"first_step_s": None, "import_s": 0.0, "about": {}}
        return SimpleNamespace(times=times, busy=times, peak_mb=1.0, facts=facts)

    ours = peer(1.0, 3.0, 5.0, 1.0)  # their medians: 6 and 2
    row = Row("a", 1, "slow")
    fill(row, peer(2.0, 6.0, 10.0), ours)
    assert (row.ms, row.ratio) == (6000, 2)


def test_ratios_and_their_gaps():
    contest = Contest(PACE)
    contest.rows = [
        Row("a", 1, "ours", ms=2.0, ratio=1.0, quartiles=(1.9, 2.1)),
        Row("a", 1, "fast", ms=1.0, ratio=0.5, quartiles=(1.0, 1.0)),
        Row("a", 1, "gone", note="not installed: pip"),
        Row("b", 1, "ours", ms=4.0, ratio=1.0, quartiles=(4.0, 4.0)),
        Row("b", 1, "fast", note="(*) no momentum", ms=8.0, ratio=2.0, quartiles=(8.0, 8.0)),
    ]
    (grid,) = ratios(document(contest, machine())["rows"])
    assert grid.header == ["", "a", "b"]
    assert grid.lines == [
        ["ours", "2 ms", "4 ms"], ["fast", "0.50", "2.00 (*)"], ["gone", "-", "-"],
    ]  # fmt: skip


def test_a_grid_as_markdown():
    shown = Grid("title", ["", "x"], [["a", "1"]]).markdown()
    assert shown == "### title\n\n|  | x |\n| --- | ---: |\n| a | 1 |\n"


@pytest.mark.parametrize(("vendor", "count"), [("GenuineIntel", 1), ("AuthenticAMD", 2)])
def test_intel_path_of_mkl_is_a_peer_of_its_own_elsewhere(monkeypatch, tmp_path, vendor, count):
    facts = tmp_path / "cpuinfo"
    facts.write_text(f"vendor_id\t: {vendor}\n")
    monkeypatch.setattr(contest, "_FACTS", facts)
    labels = [peer.label for peer in contestants("mlp", "", takes_all=False)]
    assert len([label for label in labels if label.startswith("torch, ")]) == count
