"""Predictors: providers, threads, memory, futures, rows and batches."""

import asyncio
import gc
import logging
import threading
import time
from concurrent.futures import CancelledError, as_completed

import numpy as np
import onnxruntime as ort
import pytest

from flow2onnx_runtime import (
    Batched,
    DeadlineError,
    FeedError,
    Options,
    OptionsError,
    Predictor,
    ProviderError,
    RunError,
    usable_providers,
)

OPTIONS = Options(intra_op_threads=1)
DOUBLED = "double (float[N,3] x) => (float[N,3] y) <float two = {2}> { y = Mul(x, two) }"
# As many products as it is told, with a node boundary after each.
LONG = """long (int64 n, float[200,200] x) => (float[200,200] y) <bool go = {1}>
{
 y = Loop (n, go, x) <body = step (int64 i, bool on, float[200,200] v)
   => (bool still, float[200,200] next)
  { still = Identity(on)  product = MatMul(v, v)  next = Tanh(product) }>
}"""
FOREVER = {"n": np.array(10**9), "x": np.zeros((200, 200), np.float32)}
ONCE = {"n": np.array(1), "x": np.zeros((200, 200), np.float32)}


@pytest.fixture
def double(onnx_model):
    return Predictor(onnx_model(DOUBLED), OPTIONS)


@pytest.fixture
def long(onnx_model):
    with Predictor(onnx_model(LONG), OPTIONS, workers=1) as predictor:
        yield predictor


def rows(count, start=0):
    return np.arange(start, start + 3 * count, dtype=np.float32).reshape(count, 3)


def test_a_predictor_describes_itself(double):
    (x,), (y,) = double.inputs, double.outputs
    assert (x.name, x.shape, x.element, x.dtype) == ("x", ("N", 3), "float32", np.float32)
    assert y.name == "y"
    assert double.providers == ("CPUExecutionProvider",)
    assert repr(double) == (
        "<Predictor model: x: float32[N, 3] -> y: float32[N, 3]; on CPUExecutionProvider>"
    )
    assert double.nodes in (None, {"CPUExecutionProvider": 1})


def test_providers_fall_back_in_the_order_given(onnx_model, caplog):
    with caplog.at_level(logging.WARNING):
        predictor = Predictor(onnx_model(DOUBLED), OPTIONS, providers=("tensorrt", "CUDA", "cpu"))
    asked = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    usable = usable_providers()
    assert predictor.providers == tuple(name for name in asked if name in usable)
    assert set(predictor.passed_over) == {name for name in asked if name not in usable}
    assert [r.message for r in caplog.records] == [
        f"{name} is passed over: {reason}" for name, reason in predictor.passed_over.items()
    ]
    np.testing.assert_array_equal(predictor(rows(2))["y"], 2 * rows(2))


def test_a_provider_without_fallback_must_be_there(onnx_model):
    absent = [name for name in ort.get_all_providers() if name not in usable_providers()]
    short = absent[0].removesuffix("ExecutionProvider").lower()
    with pytest.raises(ProviderError, match=f"{absent[0]} cannot be used.*usable here") as caught:
        Predictor(onnx_model(DOUBLED), providers=(short,))
    assert 'add "cpu"' in caught.value.hint


def test_providers_have_options(onnx_model):
    predictor = Predictor(onnx_model(DOUBLED), providers=[("cpu", {}), "CPUExecutionProvider"][:1])
    assert predictor.providers == ("CPUExecutionProvider",)
    with pytest.raises(OptionsError, match="no provider 'cuba'") as caught:
        Predictor(onnx_model(DOUBLED), providers=("cuba", "cpu"))
    assert "did you mean cuda?" in caught.value.hint
    with pytest.raises(OptionsError, match="no provider 'zzz'"):
        Predictor(onnx_model(DOUBLED), providers=("zzz",))


def test_calls_from_many_threads(onnx_model):
    double, wrong = Predictor(onnx_model(DOUBLED), OPTIONS), []

    def work(number):
        kept = []
        for i in range(30):
            x = rows(1 + (number + i) % 7, number * 1000 + i)
            out = np.empty_like(x)
            ways = [
                double(x)["y"],
                double.run(x, out={"y": out})["y"],
                double.submit(x).result(60)["y"],
                double.many(x, batch=2)["y"],
            ]
            kept += [(way, 2 * x) for way in ways]
        wrong.extend(number for found, wanted in kept if not np.array_equal(found, wanted))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


def test_static_results_of_threads_do_not_share_memory(onnx_model):
    model = onnx_model("d (float[2,3] x) => (float[2,3] y) <float two={2}> { y = Mul(x, two) }")
    double = Predictor(model, OPTIONS)
    found = [double(rows(2, i))["y"] for i in range(20)]
    for i, value in enumerate(found):
        np.testing.assert_array_equal(value, 2 * rows(2, i))


ALIASES = """same (float[N,3] x)
 => (float[N,3] y, float[2] w, float[M] flat, float[N,3] z, int64[2] s)
 <float[2] w = {1, 2}, int64[1] all = {-1}, float two = {2}>
{ y = Identity(x)  flat = Reshape(x, all)  z = Mul(x, two)  s = Shape(x) }"""


def test_results_are_memory_of_their_own(onnx_model):
    predictor, x = Predictor(onnx_model(ALIASES), OPTIONS), rows(2)
    first = predictor(x)
    wanted = {name: value.copy() for name, value in first.items()}
    assert not any(np.shares_memory(value, x) for value in first.values())
    for value in first.values():
        value[...] = -1  # does not reach the model's own tensors
    second = predictor(x)
    for name, value in second.items():
        np.testing.assert_array_equal(value, wanted[name])
    for _ in range(50):
        predictor(rows(2, 100))
    del predictor
    gc.collect()
    for name, value in second.items():
        np.testing.assert_array_equal(value, wanted[name])


@pytest.mark.parametrize("shape", ["4,3", "N,3"])
def test_results_go_where_they_are_wanted(onnx_model, shape):
    model = f"d (float[{shape}] x) => (float[{shape}] y, float[{shape}] z) <float two = {{2}}>"
    predictor = Predictor(onnx_model(model + "{ y = Mul(x, two)  z = Neg(x) }"), OPTIONS)
    large = np.zeros((8, 3), np.float32)
    found = predictor.run({"x": rows(4)}, out={"y": large[2:6]})
    assert np.shares_memory(found["y"], large)
    np.testing.assert_array_equal(large[2:6], 2 * rows(4))
    assert not large[:2].any()
    assert not large[6:].any()
    np.testing.assert_array_equal(found["z"], -rows(4))


def test_arrays_that_cannot_take_results(double):
    fixed = np.empty((2, 3), np.float32)
    fixed.flags.writeable = False
    for out, says in (
        (np.empty((2, 4), np.float32), r"y has shape \('N', 3\), out has \(2, 4\)"),
        (np.empty((3, 3), np.float32), r"out has \(3, 3\)"),
        (np.empty((2, 3)), "y is float32, out has float64"),
        ([[0.0] * 3] * 2, "y is float32, out has list"),
        (np.empty((3, 2), np.float32).T, "strided, unaligned or read-only"),
        (fixed, "strided, unaligned or read-only"),
    ):
        with pytest.raises(FeedError, match=says):
            double.run(rows(2), out={"y": out})
    with pytest.raises(FeedError, match="has no result q"):
        double.run(rows(2), out={"q": rows(2)})


def test_a_shape_that_only_a_run_tells(onnx_model):
    model = "n (float[N] x) => (int64[1,K] y) { y = NonZero(x) }"
    predictor, x = Predictor(onnx_model(model), OPTIONS), np.array([0, 1, 2], np.float32)
    out = np.empty((1, 2), np.int64)
    predictor.run(x, out={"y": out})
    np.testing.assert_array_equal(out, [[1, 2]])
    with pytest.raises(RunError, match="given for a result must have the shape that comes out"):
        predictor.run(x, out={"y": np.empty((1, 3), np.int64)})
    np.testing.assert_array_equal(predictor(x)["y"], [[1, 2]])


def test_inputs_of_any_strides(double):
    for x in (rows(6)[::2], np.asfortranarray(rows(4)), rows(4)[::-1]):
        out = np.empty(x.shape, np.float32)
        np.testing.assert_array_equal(double.run(x, out={"y": out})["y"], 2 * x)


class Tensor:
    """A tensor of another library: DLPack and nothing else."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device, 0


def test_tensors_of_other_libraries(double):
    np.testing.assert_array_equal(double(Tensor(rows(2)))["y"], 2 * rows(2))
    np.testing.assert_array_equal(double.submit(x=Tensor(rows(2))).result(60)["y"], 2 * rows(2))
    with pytest.raises(FeedError, match="x is float32, got float64"):
        double(Tensor(rows(2).astype(np.float64)))


def test_tensors_that_only_the_runtime_can_share(double, onnx_model):
    elsewhere = 2  # where numpy does not look
    np.testing.assert_array_equal(double(Tensor(rows(2), elsewhere))["y"], 2 * rows(2))
    out = np.empty((2, 3), np.float32)
    double.run({"x": Tensor(rows(2), elsewhere)}, out={"y": out})
    np.testing.assert_array_equal(out, 2 * rows(2))
    inverted = Predictor(onnx_model("n (bool[N] x) => (bool[N] y) { y = Not(x) }"), OPTIONS)
    says_bool = "is_bool_tensor" in ort.capi.onnxruntime_pybind11_state.OrtValue.from_dlpack.__doc__
    truths = np.uint8 if says_bool else bool  # until 1.31 truths came as bytes
    found = inverted.submit(Tensor(np.array([1, 0], truths), elsewhere)).result(60)
    np.testing.assert_array_equal(found["y"], [False, True])


def test_captured_runs_have_neither_out_nor_timeout(double, monkeypatch):
    monkeypatch.setattr(double, "_is_captured", True)
    np.testing.assert_array_equal(double(rows(2))["y"], 2 * rows(2))
    np.testing.assert_array_equal(double.submit(rows(2)).result(60)["y"], 2 * rows(2))
    for more in ({"timeout": 1}, {"out": {"y": rows(2)}}):
        with pytest.raises(OptionsError, match="captured CUDA graph, which has neither"):
            double.run(rows(2), **more)


def test_runs_have_the_entries_of_the_options(onnx_model):
    options = Options(run_entries={"memory.enable_memory_arena_shrinkage": "cpu:0"})
    predictor = Predictor(onnx_model(DOUBLED), options)
    for found in (predictor(rows(2)), predictor.run(rows(2), timeout=60)):
        np.testing.assert_array_equal(found["y"], 2 * rows(2))


def test_tensors_of_torch(double, onnx_model):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(rows(2))
    np.testing.assert_array_equal(double(x)["y"], 2 * rows(2))
    np.testing.assert_array_equal(double(x.T.contiguous().T)["y"], 2 * rows(2))
    with pytest.raises(FeedError, match=r"x: the tensor cannot be shared.*grad") as caught:
        double(x.requires_grad_())
    assert "detach" in caught.value.hint
    inverted = Predictor(onnx_model("n (bool[N] x) => (bool[N] y) { y = Not(x) }"), OPTIONS)
    np.testing.assert_array_equal(inverted(torch.tensor([True, False]))["y"], [False, True])


BFLOAT16 = """c (bfloat16[N] x) => (float[N] y, bfloat16[N] z)
{ y = Cast<to=1>(x)  z = Identity(x) }"""


def test_bfloat16_travels_as_bits(onnx_model):
    predictor = Predictor(onnx_model(BFLOAT16), OPTIONS)
    bits = (np.float32([1.5, 0, -2, 0]).view(np.uint32) >> 16).astype(np.uint16)
    found = predictor(bits[::2])
    np.testing.assert_array_equal(found["y"], [1.5, -2])
    np.testing.assert_array_equal(found["z"], bits[::2])
    assert predictor(bits[:0])["z"].shape == (0,)


def test_bfloat16_of_torch(onnx_model):
    torch = pytest.importorskip("torch")
    predictor, x = Predictor(onnx_model(BFLOAT16), OPTIONS), torch.tensor([1.5, -2.0])
    found = predictor(x.bfloat16())
    gc.collect()
    np.testing.assert_array_equal(found["y"], [1.5, -2.0])
    np.testing.assert_array_equal(found["z"].astype(np.uint32) << 16, x.numpy().view(np.uint32))
    with pytest.raises(FeedError, match=r"takes x: bfloat16\[N\], got a tensor\(float\)"):
        predictor(x)
    with pytest.raises(FeedError, match=r"takes x: bfloat16\[N\], got a .* of shape \(1, 2\)"):
        predictor(x.bfloat16()[None])


def test_runs_end_in_time(long):
    assert long.run(ONCE, timeout=60)["y"].shape == (200, 200)
    with pytest.raises(DeadlineError, match=r"did not finish within 0\.05 s") as caught:
        long.run(FOREVER, timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert long.run(ONCE)["y"].shape == (200, 200)


def test_errors_of_a_timed_run_are_its_own(onnx_model):
    model = "g (int64[N] i) => (float[N] y) <float[2] w = {1, 2}> { y = Gather(w, i) }"
    predictor = Predictor(onnx_model(model), OPTIONS)
    with pytest.raises(RunError, match="failed") as caught:
        predictor.run(np.array([7]), timeout=60)
    assert not isinstance(caught.value, DeadlineError)


def test_futures(double, long):
    pending = {double.submit(rows(n + 1)): n for n in range(8)}
    for future in as_completed(pending, 60):
        np.testing.assert_array_equal(future.result()["y"], 2 * rows(pending[future] + 1))
    with pytest.raises(FeedError, match="has no input q"):
        double.submit(q=rows(1))
    with pytest.raises(FeedError, match="float64"):
        double.submit(rows(1).astype(np.float64))


def test_a_cancelled_run_ends(long):
    under_way, waiting = long.submit(**FOREVER), long.submit(**FOREVER)
    last = long.submit(**ONCE)
    time.sleep(0.05)
    assert waiting.cancel()
    assert under_way.cancel()
    assert last.result(60)["y"].shape == (200, 200)  # the one worker is free again
    assert set(as_completed([under_way, waiting], 60)) == {under_way, waiting}
    with pytest.raises(CancelledError):
        under_way.result()
    assert not last.cancel()


def test_awaiting(double, long):
    async def work():
        found = await asyncio.gather(*(double.asynchronous(rows(n + 1)) for n in range(5)))
        for n, results in enumerate(found):
            np.testing.assert_array_equal(results["y"], 2 * rows(n + 1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await long.asynchronous(**FOREVER)
        return await long.asynchronous(**ONCE)

    assert asyncio.run(work())["y"].shape == (200, 200)


def test_errors_of_a_run_reach_the_future(onnx_model):
    model = "g (int64[N] i) => (float[N] y) <float[2] w = {1, 2}> { y = Gather(w, i) }"
    predictor = Predictor(onnx_model(model), OPTIONS)
    with pytest.raises(RunError, match="failed"):
        predictor.submit(np.array([7])).result(60)
    predictor.close()
    with pytest.raises(RunError, match="is closed"):
        predictor.submit(np.array([1]))


@pytest.mark.parametrize("first", ["N", "4"])
@pytest.mark.parametrize("sizes", [(1,), (4,), (3, 5, 1, 9), (1, 1, 1, 1, 1), (11,)])
def test_chunks_of_any_size(onnx_model, first, sizes):
    model = f"s (float[{first},3] x) => (float[{first},3] y) <float two = {{2}}>"
    predictor = Predictor(onnx_model(model + "{ y = Mul(x, two) }"), OPTIONS)
    chunks = [rows(size, 10 * i) for i, size in enumerate(sizes)]
    for form in (lambda c: c, lambda c: (c,), lambda c: {"x": c}):
        found = list(predictor.stream(map(form, chunks), batch=4))
        assert len(found) == len(chunks)
        for chunk, results in zip(chunks, found, strict=True):
            np.testing.assert_array_equal(results["y"], 2 * chunk)


def test_a_stream_takes_no_more_than_it_needs(double):
    taken = []

    def endless():
        for i in range(10**9):
            taken.append(i)
            yield rows(2, i)

    found = double.stream(endless(), batch=4)
    np.testing.assert_array_equal(next(found)["y"], 2 * rows(2))
    assert len(taken) == 2


def test_rows_that_do_not_fit(double):
    with pytest.raises(FeedError, match="no common rows"):
        next(double.stream([rows(0)]))
    with pytest.raises(FeedError, match=r"takes batches of any size, batch is 0"):
        next(double.stream([rows(2)], batch=0))


def test_batches_of_many_callers(onnx_model, monkeypatch):
    predictor, sizes = Predictor(onnx_model(DOUBLED), OPTIONS), []
    compute = predictor._compute
    monkeypatch.setattr(
        predictor, "_compute", lambda given: sizes.append(len(given[0])) or compute(given)
    )
    with predictor.batched(max_batch=8, max_delay=0.2) as batched:
        assert isinstance(batched, Batched)
        futures = [batched.submit(rows(1 + n % 2, n)) for n in range(10)]
        for n, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(60)["y"], 2 * rows(1 + n % 2, n))
        np.testing.assert_array_equal(batched(rows(20))["y"], 2 * rows(20))
        assert asyncio.run(batched.asynchronous(x=rows(1)))["y"].shape == (1, 3)
    assert sum(sizes) == 15 + 20 + 1
    assert max(sizes[:-2]) <= 8
    assert len(sizes) < 12
    with pytest.raises(RunError, match="is closed"):
        batched.submit(rows(1))


def test_closing_computes_what_waits(double):
    batched = double.batched(max_batch=100, max_delay=60)
    futures = [batched.submit(rows(1, n)) for n in range(5)]
    assert futures[2].cancel()
    batched.close()
    for n in (0, 1, 3, 4):
        np.testing.assert_array_equal(futures[n].result(0)["y"], 2 * rows(1, n))
    assert futures[2] in set(as_completed(futures, 60))


def test_a_batch_that_nobody_waits_for(double):
    with double.batched(max_batch=2, max_delay=60) as batched:
        assert batched.submit(rows(1)).cancel()
        np.testing.assert_array_equal(batched(rows(2))["y"], 2 * rows(2))


def test_a_bad_call_fails_alone(onnx_model):
    model = "g (int64[N] i) => (float[N] y) <float[2] w = {1, 2}> { y = Gather(w, i) }"
    with Predictor(onnx_model(model), OPTIONS).batched(max_batch=4, max_delay=60) as batched:
        good = [batched.submit(np.array([n % 2])) for n in range(3)]
        bad = batched.submit(np.array([9]))
        assert [float(f.result(60)["y"][0]) for f in good] == [1, 2, 1]
        with pytest.raises(RunError, match="failed"):
            bad.result(60)
        with pytest.raises(FeedError, match="int64, got float32"):
            batched(np.float32([1]))


def test_calls_of_other_shapes_are_not_joined(onnx_model):
    model = "d (float[N,K] x) => (float[N,K] y) <float two = {2}> { y = Mul(x, two) }"
    with Predictor(onnx_model(model), OPTIONS).batched(max_batch=4, max_delay=0.1) as batched:
        wide = [batched.submit(np.ones((1, k), np.float32)) for k in (2, 3, 2)]
        assert [f.result(60)["y"].shape for f in wide] == [(1, 2), (1, 3), (1, 2)]


def test_calls_whose_results_are_no_rows_are_run_alone(onnx_model):
    model = "w (float[N] x) => (int64[K,1] y) { i = NonZero(x)  y = Transpose(i) }"
    with Predictor(onnx_model(model), OPTIONS).batched(max_batch=2, max_delay=60) as batched:
        futures = [batched.submit(np.float32([n])) for n in (0, 4)]
        assert [f.result(60)["y"].shape for f in futures] == [(0, 1), (1, 1)]


def test_models_that_cannot_be_batched(onnx_model, double):
    fixed = onnx_model("d (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    with pytest.raises(FeedError, match=r"first size of x: float32\[2, 3\] is no free batch"):
        Predictor(fixed, OPTIONS).batched()
    for arguments in ((0,), (4, -1)):
        with pytest.raises(FeedError, match="max_batch is"):
            double.batched(*arguments)


def test_warming_up(double, onnx_model):
    double.warm_up()
    model = onnx_model("a (float[N,K] x, float[K] w) => (float[N,K] y) { y = Add(x, w) }")
    predictor = Predictor(model, OPTIONS)
    predictor.warm_up({"K": 5})
    with pytest.raises(RunError):
        Predictor(
            onnx_model("r (float[N] x) => (float[2,3] y) <int64[2] s={2,3}> { y = Reshape(x, s) }"),
            OPTIONS,
        ).warm_up()


def test_models_in_the_format_of_onnxruntime(onnx_model, tmp_path):
    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "double.ort")
    settings.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(onnx_model(DOUBLED), settings, providers=["CPUExecutionProvider"])
    predictor = Predictor(tmp_path / "double.ort", OPTIONS)
    np.testing.assert_array_equal(predictor(rows(2))["y"], 2 * rows(2))


@pytest.mark.parametrize("job", [None, "baked_job"])
def test_everything_works_on_a_bundle(bundle, job):
    x = rows(5)
    with Predictor(bundle, OPTIONS, job=job) as predictor:
        wanted, out = predictor(x)["z"], np.empty((5, 1), np.float32)
        predictor.run(x, out={"z": out})
        for found in (
            out,
            predictor.run(x, timeout=60)["z"],
            predictor.submit(x).result(60)["z"],
            predictor.many(x, batch=2)["z"],
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
