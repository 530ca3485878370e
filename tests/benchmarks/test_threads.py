"""The sweep over threads: what follows from its times, and the files; no time is asserted."""

import json
import sys

import pytest

from benchmarks import threads
from benchmarks.contest import Contest, Row


def test_the_serial_share_is_that_of_amdahl():
    for share in (0.0, 0.1, 1.0):
        two = share + (1 - share) / 2
        assert threads.serial_share(1.0, two) == pytest.approx(share)
        assert threads.bound(share, 2) == pytest.approx(1 / two)
    assert threads.serial_share(1.0, 0.4) == 0, "more than twice as fast is no negative share"
    assert threads.serial_share(1.0, 1.2) == 1
    assert threads.bound(0.1, 64) == pytest.approx(8.7671, rel=1e-4)


def found(rows):
    return {"machine": {"cores": 2}, "rows": rows}


def row(peer, count, ms):
    return {"workload": "mlp", "peer": peer, "threads": count, "fastest_ms": ms, "busy_ms": ms}


def test_tables_have_gaps_where_nothing_was_measured():
    rows = [row("ours", 1, 10.0), row("ours", 2, 5.5), row("ours", 8, 11.0),
            row("other", 1, 20.0), row("other", 2, None), row("other", 8, None)]  # fmt: skip
    times, busy, follows = threads.tables(found(rows))
    assert times.header == busy.header == ["threads", "1", "2", "8"]
    assert times.lines == [["ours", "10", "5.5", "11"], ["other", "20", "-", "-"]]
    assert follows.header[-1] == "lost, 8 threads on 2 cores"
    ours, other = follows.lines
    assert ours == ["mlp, ours", "0.100", "3.1", "4.7", "6.4", "7.8", "8.8", "2.00"]
    assert other == ["mlp, other", *["-"] * 7]


def test_the_program_writes_numbers_page_and_chart(tmp_path, monkeypatch, capsys):
    def measure(self, name, setting, who):
        ms = 8.0 / setting.threads
        made = [Row(name, setting.threads, w.label, ms=ms, fastest_ms=ms, busy_ms=8.0)
                for w in who]  # fmt: skip
        self.rows += made
        return made

    monkeypatch.setattr(Contest, "measure", measure)
    arguments = ["threads", "--rows", "mlp,gpt", "--threads", "1,2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    threads.main()
    written = json.loads((tmp_path / "threads.json").read_text())
    assert list(written["workloads"]) == ["mlp", "gpt"]
    assert {r["threads"] for r in written["rows"]} == {1, 2}
    assert "Karp and Flatt (1990)" in (tmp_path / "threads.md").read_text()
    assert "gpt, 2 thread(s): torch 4 ms (4 median), 8 busy" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert (tmp_path / "threads.svg").read_text().startswith("<?xml")


def test_rows_are_added_to_those_of_this_machine(tmp_path, monkeypatch):
    def measure(self, name, setting, who):
        made = [Row(name, setting.threads, "ours", fastest_ms=float(setting.threads))]
        self.rows += made
        return made

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["threads", "--out", str(tmp_path), *arguments])
        threads.main()
        return json.loads((tmp_path / "threads.json").read_text())

    monkeypatch.setattr(Contest, "measure", measure)
    run("--rows", "gpt", "--threads", "1,4")
    found = run("--rows", "mlp,gpt", "--threads", "1", "--add")
    assert [(r["workload"], r["threads"]) for r in found["rows"]] == [
        ("mlp", 1), ("gpt", 1), ("gpt", 4),
    ]  # fmt: skip
    assert list(found["workloads"]) == ["mlp", "gpt"]
    (tmp_path / "threads.json").write_text(json.dumps(found | {"machine": {"cores": 0}}))
    with pytest.raises(SystemExit, match="nothing can be added"):
        run("--rows", "mlp", "--threads", "1", "--add")


def test_an_unknown_row_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["threads", "--rows", "mlp,alexnet"])
    with pytest.raises(SystemExit):
        threads.main()
    assert "there is no row alexnet; there are mlp, gpt, resnet18" in capsys.readouterr().err
