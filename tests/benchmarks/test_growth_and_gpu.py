"""What the benchmarks of growth and of GPUs compute from their measurements."""

import pytest

from benchmarks import gpu, scaling
from benchmarks.contest import Contest, Pace, Row, machine
from benchmarks.report import document, page
from benchmarks.workloads import Workload, workload


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_exponent_of_a_power(power):
    sizes = [1, 3, 10, 100]
    assert scaling.exponent(sizes, [7 * s**power for s in sizes]) == pytest.approx(power, abs=1e-9)


def test_upper_half_leaves_out_what_a_step_costs_anyhow():
    points = [(float(n), 1.0 + n) for n in (1, 2, 4, 8, 64, 1024)]
    whole, upper = scaling.exponents(points)
    assert whole < upper < 1


def test_every_series_names_workloads_that_grow():
    for series in scaling.SERIES:
        works = [workload(series.workload.format(size)) for size in series.sizes]
        costs = [w.sizes.flops + sum(w.sizes.variables["categories-table"])
                 if w.tables else w.sizes.flops for w in works]  # fmt: skip
        assert costs == sorted(set(costs)), series.name


def test_embedding_reads_as_many_rows_whatever_its_size():
    series = next(s for s in scaling.SERIES if "embedding" in s.name)
    read = {workload(series.workload.format(s)).inputs[0].shape for s in series.sizes}
    assert read == {(512, 1)}


def test_growth_as_tables_and_chart(tmp_path):
    contest = Contest(Pace())
    for size in (1, 2, 4, 8):
        row = Row("MLP by batch", 1, "flow2onnx", ms=3.0 * size, quartiles=(1.0, 2.0))
        row.extra["size"] = size
        contest.rows.append(row)
    found = document(contest, machine(), title="Growth", notes=(), workloads={})
    (grid,) = scaling.tables(found)
    assert grid.lines == [["flow2onnx", "3", "6", "12", "24", "1.00", "1.00"]]
    pytest.importorskip("matplotlib").use("Agg")
    scaling.draw(found, tmp_path / "x.svg")
    assert "MLP by batch" in (tmp_path / "x.svg").read_text()


def perceptron() -> Workload:
    return workload("mlp:batch=100,hidden=512")


def test_arithmetic_of_a_step():
    assert gpu.flops(perceptron()) == 3 * 2 * 100 * (784 * 512 + 512 * 10)


def test_least_traffic_of_a_step():
    # results: two dense layers and a ReLU; variables: read and written, gradient written and read
    results, weights = 100 * (512 + 512 + 10), 407_050
    assert gpu.traffic(perceptron(), "float32") == 5 * 4 * results + 4 * 4 * weights
    assert gpu.traffic(perceptron(), "float16") == 5 * 2 * results + 4 * 4 * weights


@pytest.mark.parametrize(
    ("device", "precision", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "tf32", (494.7e12, 3350e9)),
        ("NVIDIA H100 PCIe", "bfloat16", (756e12, 2000e9)),
        ("NVIDIA A100-SXM4-40GB", "float32", (19.5e12, 1555e9)),
        ("NVIDIA A10G", "float32", None),
        ("Tesla T4", "float16", (65e12, 320e9)),
    ],
)
def test_peaks_by_name(device, precision, known):
    assert gpu.peaks(device, precision) == known


def test_shares_of_the_peaks():
    work = perceptron()
    found = gpu.shares(work, "float32", 1.0, "NVIDIA H200")
    assert found["TFLOP/s"] == pytest.approx(gpu.flops(work) / 1e9)
    assert found["arithmetic"] == pytest.approx(found["TFLOP/s"] / 67.0)
    assert found["bandwidth"] == pytest.approx(found["GB/s"] / 4800)
    assert gpu.shares(work, "float32", 1.0, "another").keys() == {"TFLOP/s", "GB/s"}


def test_table_of_shares_has_gaps_where_nothing_ran():
    contest = Contest(Pace())
    contest.rows = [
        Row("mlp tf32", 2, "flow2onnx", ms=1.0, quartiles=(1.0, 1.0),
            extra={"TFLOP/s": 12.34, "GB/s": 500.0, "arithmetic": 0.5}),
        Row("mlp tf32", 2, "JAX", note="ended: no GPU"),
    ]  # fmt: skip
    found = document(contest, machine(), title="GPU", notes=("note",), workloads={})
    grid = gpu.table_of_shares(found["rows"])
    assert grid.lines[0][2:] == ["1", "12.3", "50.0%", "500", "-", ""]
    assert grid.lines[1][2:] == ["-", "-", "-", "-", "-", "ended: no GPU"]
    assert "50.0%" in page(found, [grid])


def test_a_machine_without_a_gpu_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="need an NVIDIA GPU and its driver"):
        gpu.device_name()
