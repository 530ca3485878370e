"""Numbers that the benchmarks of growth and of GPUs compute from their measurements."""

import pytest

from benchmarks import ceilings, gpu, roofline, scaling
from benchmarks.contest import Contest, Pace, Row, machine
from benchmarks.report import document, page
from benchmarks.roofline import Ceilings
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


CEILINGS = Ceilings({"float32": 50e12, "tf32": 400e12, "float16": 800e12}, 4e12)


def test_shares_of_what_was_measured():
    work = perceptron()
    found = gpu.shares(work, "tf32", 0.5, "another", CEILINGS)
    assert found["of products"] == pytest.approx(found["TFLOP/s"] / 400)
    assert found["of memory"] == pytest.approx(found["GB/s"] / 4000)
    assert found["of roofline"] == max(found["of products"], found["of memory"])


def test_the_best_of_two_libraries_is_the_ceiling():
    mine = {**dict.fromkeys(ceilings.PRECISIONS, 2.0), "bandwidth": 7.0}
    theirs = mine | {"tf32": 3.0, "bandwidth": 5.0}
    found = ceilings.best_of({"onnxruntime": mine, "torch": theirs, "other": "ImportError: no"})
    assert (found.products["tf32"], found.products["float16"], found.bandwidth) == (3, 2, 7)
    with pytest.raises(ValueError, match="torch: no CUDA"):
        ceilings.best_of({"torch": "no CUDA"})


GRAPH = """<ir_version: 10, opset_import: ["": 21]>
g (float[4,8] x, float[8,16] w, float16[2,3,6,6] image, float16[5,3,3,3] kernel, int64[2] at,
   float[2,16] rows) => (float[4,16] table, float16[2,5,4,4] conv, float[16,2] last)
{
  product = MatMul(x, w)
  flat = Reshape(product, shape)
  seen = Relu(product)
  table = ScatterND(seen, places, rows)
  conv = Conv(image, kernel)
  last = Gemm<transA = 1>(product, two)
}"""


def test_costs_of_a_graph_are_those_counted_by_hand():
    import onnx
    import onnx_ir as ir

    typed = GRAPH.replace("float[2,16] rows", "float[2,16] rows, int64[1] shape, int64[2,1] places,"
                          " float[4,2] two")  # fmt: skip
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(typed))
    found = {c.operator: c for c in roofline.costs(ir.from_proto(model).graph, "tf32")}
    assert found.keys() == {"MatMul", "Relu", "ScatterND", "Conv", "Gemm"}
    assert found["MatMul"] == roofline.Cost("MatMul", "tf32", 4 * (32 + 128 + 64), 2 * 4 * 16 * 8)
    assert found["Relu"] == roofline.Cost("Relu", "tf32", 4 * 2 * 64, 0)
    assert found["ScatterND"].bytes == 2 * 4 * 32 + 8 * 2  # two rows, in the table's own buffer
    assert found["Conv"].flops == 2 * (2 * 5 * 4 * 4) * 3 * 3 * 3
    assert found["Conv"].precision == "float16"
    assert found["Gemm"].flops == 2 * (16 * 2) * 4


def test_the_least_time_is_that_of_the_slower_of_memory_and_arithmetic():
    ceiling = Ceilings({"tf32": 1e6}, 1e6, launch=0.5e-3)
    memory, work = roofline.Cost("Add", "tf32", 4000, 0), roofline.Cost("MatMul", "tf32", 1, 2000)
    short = roofline.Cost("Neg", "tf32", 1, 0, count=3)
    assert roofline.least_ms([memory, work, short], ceiling) == pytest.approx(4 + 2 + 3 * 0.5)
    assert list(roofline.by_operator([short, memory, work], ceiling)) == ["Add", "MatMul", "Neg"]


def test_tables_have_gaps_where_nothing_is_known_and_say_who_is_absent():
    contest = Contest(Pace())
    contest.rows = [
        Row("mlp tf32", 2, "flow2onnx", ms=1.0, ratio=1.0, quartiles=(1.0, 1.0),
            extra={"TFLOP/s": 12.34, "GB/s": 500.0, "arithmetic": 0.5, "of graph": 0.25,
                   "nodes": 24, "captured": True}),
        Row("mlp tf32", 2, "JAX", note="ended: no GPU"),
    ]  # fmt: skip
    found = document(contest, machine(), title="GPU", notes=("note",), workloads={})
    grids = {grid.title: grid for grid in gpu.tables(found["rows"])}
    (rates,) = grids["achieved rates"].lines
    assert rates[2:] == ["1", "12.3", "-", "50.0%", "500", "-", "-", "-"]
    (graph,) = grids["our graphs"].lines
    assert graph[2:] == ["1", "24", "1", "-", "25.0%"]
    assert grids["absent"].lines == [["mlp tf32", "JAX", "ended: no GPU"]]
    assert all(len(line) == len(g.header) for g in grids.values() for line in g.lines)
    assert "50.0%" in page(found, list(grids.values()))


@pytest.mark.parametrize("given", [["--rows", "vgg"], ["--precisions", "int8"]])
def test_a_row_or_precision_that_is_none_is_refused(given, capsys):
    with pytest.raises(SystemExit):
        gpu.main(given)
    assert f"there is no '{given[1]}'; there are" in capsys.readouterr().err


def test_peers_are_chosen_by_their_names():
    def labels(*peers):
        return [who.label for who in gpu.contestants("mlp", list(peers))]

    assert labels() == ["flow2onnx", "flow2onnx, native", "torch", "torch.compile", "JAX"]
    assert labels("native") == ["flow2onnx", "flow2onnx, native"]
    assert labels("compile", "JAX") == ["flow2onnx", "torch.compile", "JAX"]
    assert labels("nobody") == ["flow2onnx"]


def test_a_rehearsal_is_no_result(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--rehearse"])
    assert "--rehearse needs --out FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize("row", gpu.ROWS)
def test_a_row_and_its_rehearsal_are_of_one_network(row):
    _, name, small = gpu.ROWS[row]
    assert name.partition(":")[0] == small.partition(":")[0]
    assert workload(small).sizes.flops < workload(name).sizes.flops / 20


def test_a_machine_without_a_gpu_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="need an NVIDIA GPU and its driver"):
        gpu.device_name()
