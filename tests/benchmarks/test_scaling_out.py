"""Numbers that the benchmark of several ranks computes, and the link it makes."""

import subprocess
import sys

import pytest

from benchmarks import scaling_out
from benchmarks.contest import Contest, Pace, machine
from benchmarks.links import ADDRESSES, LinkRefusedError, shaped_link
from benchmarks.peers import Options
from benchmarks.report import document
from benchmarks.scaling_out import RankedRow
from benchmarks.workloads import workload


@pytest.mark.parametrize(("step", "share"), [(10.0, 1.0), (14.0, 0.0), (12.0, 0.5), (16.0, -0.5)])
def test_hidden_is_what_a_step_does_not_take_longer_for(step, share):
    assert scaling_out.hidden_share(step, 10.0, 4.0) == share


def test_every_workload_divides_by_all_ranks():
    for _, text in scaling_out.WORKLOADS.values():
        assert all(i.shape[0] % 4 == 0 for i in workload(text).inputs)


def test_switches_have_numbers():
    options = Options(frozenset({"bucket=4", "together"}))
    assert (options.number("bucket", 1), options.number("other", 7)) == (4, 7)


def test_ranks_as_tables_and_chart(tmp_path):
    contest = Contest(Pace())
    for ranks in (1, 2):
        row = RankedRow("mlp", ranks, "loopback", "flow2onnx", ms=6.0, quartiles=(5.0, 7.0))
        row.busy_ms, row.ratio, row.state_mb, row.peak_mb = 5.5, 1.0, [0.5] * ranks, [90.0] * ranks
        if ranks > 1:
            row.compute_ms, row.communication_ms, row.hidden = 5.0, 2.0, 0.5
            row.collectives = [2**20, 2**19]
        contest.rows.append(row)
    found = document(contest, machine(), title="Ranks", notes=(), workloads={"mlp": "an MLP"})
    (grid,) = scaling_out.tables(found)
    alone, together = grid.lines
    assert alone[:4] == ["mlp", "1", "flow2onnx", "6"]
    assert together[4:12] == ["5 … 7", "5.5", "5", "2", "50 %", "1.00", "1.50", "0.5, 0.5"]
    assert len(grid.header) == len(together)
    pytest.importorskip("matplotlib").use("Agg")
    scaling_out.draw(found, tmp_path / "x.svg")
    assert "flow2onnx" in (tmp_path / "x.svg").read_text()


_SERVER = """
import socket, sys
with socket.create_server(("{0}", 7001)) as server:
    print("listens", flush=True)
    connection, _ = server.accept()
    with connection:
        connection.sendall(connection.recv(5))
"""
_CLIENT = """
import socket, time
with socket.create_connection(("{0}", 7001)) as connection:
    begun = time.perf_counter()
    connection.sendall(b"there")
    assert connection.recv(5) == b"there"
    print(time.perf_counter() - begun)
"""


def test_a_link_delays_what_it_carries():
    try:
        with shaped_link(1000, 20.0) as link:
            python = [sys.executable, "-c"]
            server = subprocess.Popen(
                link.command(0, [*python, _SERVER.format(*ADDRESSES)]),
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            with server:
                assert server.stdout.readline() == "listens\n"
                done = subprocess.run(
                    link.command(1, [*python, _CLIENT.format(*ADDRESSES)]),
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
            assert float(done.stdout) >= 2 * 0.020
    except LinkRefusedError as error:
        pytest.skip(str(error))
    known = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not any(space in known for space in link.spaces)
