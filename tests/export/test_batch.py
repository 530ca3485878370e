"""Predict models that take batches of any size."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Predictor

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.export import describe
from tests.export.jobs import batch, define, predict


def arrays(shape, size, dtype=np.float32):
    rng = np.random.default_rng(size)
    return (rng.random((size, *shape[1:])) * 4).astype(dtype)


def check(job, path, shape, sizes=(1, 4, 9)):
    """Export with a free batch and compare with the job, whose batch is 4, row by row."""
    report = job.export(path, dynamic_batch=True)
    assert report.ok, str(report)
    predictor = Predictor(path)
    for size in sizes:
        x = arrays(shape, size)
        padded = np.concatenate([x, np.zeros((-size % 4, *shape[1:]), np.float32)])
        want = np.concatenate([job(padded[i : i + 4]) for i in range(0, len(padded), 4)])
        found = predictor(x)["out/0"]
        assert found.shape[0] * len(padded) == want.shape[0] * size
        np.testing.assert_allclose(found, want[: len(found)], rtol=1e-5, atol=1e-5)


def channels(x):
    w = flow.get_variable("w", (5, 3, 3, 3), initializer=flow.random_normal_initializer())
    y = flow.nn.conv2d(x, w, strides=1, padding="SAME", data_format="NCHW")
    return flow.nn.max_pool2d(flow.nn.relu(y), 2, 2, "VALID", data_format="NCHW")


BODIES = {
    "flatten": ((4, 2, 3), lambda x: flow.reshape(x, [x.shape[0], -1])),
    "exact": ((4, 2, 3), lambda x: flow.reshape(x, [x.shape[0], 6])),
    "rows": ((4, 2, 3), lambda x: flow.reshape(x, [x.shape[0] * 2, 3])),
    "rows_and_back": (
        (4, 2, 3),
        lambda x: flow.reshape(flow.reshape(x, [x.shape[0] * 2, 3]), [x.shape[0], 2, 3]),
    ),
    "fresh_axis": ((4, 6), lambda x: flow.reshape(x, [x.shape[0], 1, 2, -1])),
    "convolution": ((4, 3, 6, 6), channels),
    "softmax": ((4, 5), lambda x: flow.nn.softmax(x)),
    "sum": ((4, 5), lambda x: flow.math.reduce_sum(x, axis=1)),
    "concat": ((4, 5), lambda x: flow.concat([x, x * 2.0], axis=1)),
    "slice": ((4, 5), lambda x: flow.slice(x, [None, 1], [None, 3])),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(tmp_path, name):
    shape, body = BODIES[name]
    check(predict(shape, body), tmp_path / "m.onnx", shape)


def test_reshape_says_it_without_computing(tmp_path):
    shape, body = BODIES["flatten"]
    predict(shape, body).export(tmp_path / "m.onnx", dynamic_batch=True)
    facts = describe(tmp_path / "m.onnx")
    assert facts["nodes"] == {"Reshape": 1}
    assert facts["inputs"][0]["shape"] == ["batch", 2, 3]
    assert facts["outputs"][0]["shape"] == ["batch", 6]


def test_two_varying_sizes_are_computed(tmp_path):
    def body(x):
        return flow.reshape(flow.reshape(x, [x.shape[0] * 2, 3]), [1, -1, x.shape[0]])

    job = predict((4, 2, 3), body)
    assert job.export(tmp_path / "m.onnx", dynamic_batch=True).ok
    for size in (1, 4, 9):
        x = arrays((4, 2, 3), size)
        found = Predictor(tmp_path / "m.onnx")(x)["out/0"]
        np.testing.assert_array_equal(found, x.reshape(1, -1, size))
    assert "Shape" in describe(tmp_path / "m.onnx")["nodes"]


def test_a_constant_of_one_number_is_stretched(tmp_path):
    def body(x):
        return x + flow.constant(2.5, dtype=flow.float, shape=(x.shape[0], 3))

    check(predict((4, 3), body), tmp_path / "m.onnx", (4, 3))


def test_no_stale_shapes(tmp_path):
    _, predict_job = define()
    predict_job.export(tmp_path / "m.onnx", dynamic_batch=True)
    model = onnx.load(tmp_path / "m.onnx")
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            assert dim.dim_value not in (61, 74, 87, 6), value
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def test_mlp_at_every_batch(tmp_path):
    train_job, predict_job = define()
    train_job(*batch())
    assert predict_job.export(tmp_path / "m.onnx", dynamic_batch=True, weights="safetensors").ok
    session = ort.InferenceSession(tmp_path / "m.onnx")
    images, _ = batch(3)
    want = predict_job(images)
    many = np.concatenate([images] * 50)
    for given, expected in ((images[:1], want[:1]), (images, want), (many, np.tile(want, (50, 1)))):
        found = session.run(None, {"images": given})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_inputs_without_the_batch_keep_their_size(tmp_path):
    table = tp.Numpy.Placeholder((4, 3), batch_axis=None)
    job = predict((4, 3), lambda x, y: flow.matmul(x, y, transpose_b=True), table)
    assert job.export(tmp_path / "m.onnx", dynamic_batch=True).ok
    shapes = {v["name"]: v["shape"] for v in describe(tmp_path / "m.onnx")["inputs"]}
    assert shapes == {"x": ["batch", 3], "y": [4, 3]}


def test_inputs_that_share_the_batch(tmp_path):
    job = predict(
        (4, 3), lambda x, y: x * flow.reshape(y, [x.shape[0], 1]), tp.Numpy.Placeholder((4,))
    )
    assert job.export(tmp_path / "m.onnx", dynamic_batch=True).ok
    x, y = arrays((4, 3), 5), arrays((4,), 5)
    found = Predictor(tmp_path / "m.onnx")(x, y)["out/0"]
    np.testing.assert_allclose(found, x * y[:, None], rtol=1e-6)


def literal(x):
    return flow.reshape(x, [4, 6])


def data(x):
    return x + flow.constant(x.shape[0] * 0.5, dtype=flow.float, shape=(1, 3))


def variable(x):
    w = flow.get_variable("w", (x.shape[0], 3), initializer=flow.ones_initializer())
    return x + w


def named(x):
    w = flow.get_variable(f"w{x.shape[0]}", (1, 3), initializer=flow.ones_initializer())
    return x + w


def other_body(x):
    return flow.math.relu(x) if x.shape[0] % 3 else flow.math.exp(x)


def longer_body(x):
    for _ in range(x.shape[0] // 4):
        x = flow.math.relu(x)
    return x


def other_result(x):
    a, b = flow.math.relu(x), flow.math.relu(x * 2.0)
    return flow.math.exp(a) * 0.0 + b if x.shape[0] % 2 else flow.math.exp(b) * 0.0 + a


def squeezed(x):
    return flow.squeeze(x, axis=[0]) if x.shape[0] == 1 else x * 1.5


REFUSED = [
    (other_result, (4, 3), "something else"),
    (squeezed, (1, 3), "something else"),
    (lambda x: flow.squeeze(x), (1, 3, 1, 2), "a case of its own"),
    (literal, (4, 2, 3), "another batch size"),
    (data, (4, 3), "depends on the batch"),
    (variable, (4, 3), "variable w depends on the batch"),
    (named, (4, 3), "depends on the batch"),
    (other_body, (4, 3), "something else|another batch"),
    (longer_body, (4, 3), "something else"),
]


@pytest.mark.parametrize(
    ("body", "shape", "words"), REFUSED, ids=lambda v: getattr(v, "__name__", "")
)
def test_what_depends_on_the_batch_is_refused(tmp_path, body, shape, words):
    job = predict(shape, body)
    with pytest.raises(UnsupportedError, match=words) as caught:
        job.export(tmp_path / "m.onnx", dynamic_batch=True)
    assert caught.value.job == "predict_job"
    assert "test_batch.py:" in str(caught.value)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_the_node_and_the_line_that_forbid_it_are_named(tmp_path):
    def body(x):
        y = flow.math.relu(x, name="before")
        return y + flow.constant(x.shape[0] * 0.5, dtype=flow.float, shape=(1, 3), name="half")

    line = body.__code__.co_firstlineno + 2
    with pytest.raises(UnsupportedError) as caught:
        predict((4, 3), body).export(tmp_path / "m.onnx", dynamic_batch=True)
    assert str(caught.value).startswith("add_0: Add: a float32 constant of shape (1, 3)")
    assert caught.value.op == "add_0"
    assert caught.value.source.endswith(f"test_batch.py:{line}")

    def reshaped(x):
        return flow.reshape(x, [4, 6])

    flow.clear_default_session()
    line = reshaped.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedError) as caught:
        predict((4, 2, 3), reshaped).export(tmp_path / "m.onnx", dynamic_batch=True)
    assert caught.value.op == "reshape"
    assert caught.value.source.endswith(f"test_batch.py:{line}")


def test_no_batch_axis(tmp_path):
    @flow.global_function(type="predict")
    def job(x: tp.Numpy.Placeholder((4, 3), batch_axis=None)) -> tp.Numpy:
        return flow.math.relu(x)

    with pytest.raises(UnsupportedError, match="no input with a batch axis"):
        job.export(tmp_path / "m.onnx", dynamic_batch=True)


def test_train_jobs_have_a_fixed_batch(tmp_path):
    train_job, _ = define()
    with pytest.raises(ArgumentError, match="fixed"):
        train_job.export(tmp_path / "b", dynamic_batch=True)
