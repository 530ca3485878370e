"""Annotations of the standard in exported models: what hints and placements ask of devices."""

import numpy as np
import onnx
import onnxruntime
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, FlowError, UnsupportedError
from tests.api.support import rate

SPLIT, NORMAL = flow.distribute.split, flow.random_normal_initializer()


def dense(x, units, name, **more):
    return flow.layers.dense(x, units, kernel_initializer=NORMAL, name=name, **more)


def split_kernel(x):
    return dense(flow.math.relu(dense(x, 8, "a")), 6, "b", model_distribute=SPLIT(0))


def stages(x):
    with flow.scope.placement("cpu", "0:0"):
        hidden = flow.math.relu(dense(x, 8, "a"))
    with flow.scope.placement("cpu", "0:1"):
        return dense(hidden, 6, "b")


def jobs(network):
    """A train job and a predict job of a network."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train(
        x: tp.Numpy.Placeholder((8, 5)), y: tp.Numpy.Placeholder((8,), flow.int32)
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
        flow.optimizer.SGD(rate(0.1), momentum=0.9).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict(x: tp.Numpy.Placeholder((8, 5))) -> tp.Numpy:
        return network(x)

    return train, predict


def layouts(model):
    """For each node the devices of what is annotated, with the axis, the size and the shards."""
    return {
        node.name: {
            spec.tensor_name: (
                tuple(spec.device),
                *((d.axis, d.simple_sharding[0].dim_value, d.simple_sharding[0].num_shards)
                  for d in spec.sharded_dim),
            )
            for one in node.device_configurations for spec in one.sharding_spec
        }
        for node in model.graph.node
    }  # fmt: skip


def stages_of(model):
    return {n.name: n.device_configurations[0].pipeline_stage for n in model.graph.node}


def without_annotations(model):
    plain = onnx.ModelProto.FromString(model.SerializeToString())
    del plain.configuration[:]
    for node in plain.graph.node:
        del node.device_configurations[:]
    plain.ir_version = 10
    return plain.SerializeToString(deterministic=True)


def test_a_split_kernel_is_told_from_its_value_to_its_next_one(tmp_path):
    train, predict = jobs(split_kernel)
    report = train.export(tmp_path / "b", sharding=2, predict=predict)
    assert report.ok, report
    model = onnx.load(tmp_path / "b/step.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 11
    (configuration,) = model.configuration
    assert (configuration.num_devices, list(configuration.device)) == (2, ["0:0", "0:1"])
    found, both = layouts(model), (0, 1)
    product = found["b-matmul/Gemm"]
    assert product["b-weight"] == (both, (0, 6, 2))
    assert product["b-bias"] == (both, (0, 6, 2))
    assert product["b-matmul/out"] == (both, (1, 6, 2))
    # its rows are those of the batch where it is made, and all of them where the product reads it
    hidden = next(v for v in product if v not in ("b-weight", "b-bias", "b-matmul/out"))
    assert product[hidden] == (both,)
    assert any(specs.get(hidden) == (both, (0, 8, 2)) for specs in found.values())
    made = {name: layout for specs in found.values() for name, layout in specs.items()}
    for name in ("next/b-weight", "next/b-weight-momentum", "next/b-bias"):
        assert made[name] == (both, (0, 6, 2))
    assert "next/a-weight" not in made  # all devices have it whole
    names = {c.configuration_id for n in model.graph.node for c in n.device_configurations}
    assert names == {configuration.name}
    assert onnx.load(tmp_path / "b/predict.onnx").configuration


def test_stages_have_numbers_and_devices(tmp_path):
    train, _ = jobs(stages)
    assert train.export(tmp_path / "b", sharding=2).ok
    model = onnx.load(tmp_path / "b/step.onnx")
    onnx.checker.check_model(model, full_check=True)
    found, numbers = layouts(model), stages_of(model)
    assert set(numbers.values()) == {0, 1}
    for name, specs in found.items():
        assert {devices for devices, *split in specs.values()} == {(numbers[name],)}
        owner = name.removeprefix("grad/").removeprefix("update/")[0]
        if owner in "ab" and owner != "s":
            assert numbers[name] == "ab".index(owner), name


def test_models_compute_what_they_do_without(tmp_path):
    _, predict = jobs(split_kernel)
    predict.export(tmp_path / "told.onnx", sharding=3)
    predict.export(tmp_path / "plain.onnx")
    plain, told = ((tmp_path / f"{name}.onnx").read_bytes() for name in ("plain", "told"))
    assert without_annotations(onnx.ModelProto.FromString(told)) == plain
    x = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    first, second = (
        onnxruntime.InferenceSession(content).run(None, {"x": x})[0] for content in (plain, told)
    )
    np.testing.assert_array_equal(first, second)


def test_hints_in_the_middle_and_open_batches(tmp_path):
    def network(x):
        hidden = flow.parallel_cast(dense(x, 8, "a"), distribute=SPLIT(1))
        hidden = flow.parallel_cast(hidden, distribute=flow.distribute.broadcast())
        return dense(hidden, 6, "b")

    _, predict = jobs(network)
    predict.export(tmp_path / "p.onnx", sharding=2, dynamic_batch=True)
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    first, second = (n for n in model.graph.node if n.op_type == "Identity")
    found, both = layouts(model), (0, 1)
    assert found[first.name][first.output[0]] == (both, (1, 8, 2))
    assert found[second.name] == {first.output[0]: (both, (1, 8, 2))}
    (product,) = (n for n in model.graph.node if "x" in n.input)
    (spec,) = (s for s in product.device_configurations[0].sharding_spec if s.tensor_name == "x")
    free = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    assert free
    assert spec.sharded_dim[0].simple_sharding[0].dim_param == free


def test_as_many_devices_as_the_session_has(tmp_path):
    flow.clear_default_session()
    flow.config.cpu_device_num(4)
    _, predict = jobs(lambda x: dense(x, 6, "a"))
    flow.config.cpu_device_num(4)
    predict.export(tmp_path / "p.onnx", sharding=True)
    assert onnx.load(tmp_path / "p.onnx").configuration[0].num_devices == 4


def test_nothing_is_told_unless_asked(tmp_path):
    _, predict = jobs(split_kernel)
    predict.export(tmp_path / "p.onnx")
    model = onnx.load(tmp_path / "p.onnx")
    assert model.ir_version == 10
    assert not model.configuration
    assert not any(node.device_configurations for node in model.graph.node)


@pytest.mark.parametrize(
    ("given", "message"),
    [(True, "there is one device"), (1, "of 2 or more"), (0, "2 or more"), ("2", "2 or more"),
     (2.0, "of 2 or more")],
)  # fmt: skip
def test_numbers_of_devices_that_are_none(given, message, tmp_path):
    _, predict = jobs(split_kernel)
    with pytest.raises(ArgumentError, match=message):
        predict.export(tmp_path / "p.onnx", sharding=given)
    assert not list(tmp_path.iterdir())


def test_what_devices_cannot_share_is_refused(tmp_path):
    _, predict = jobs(split_kernel)
    with pytest.raises(ArgumentError, match="sharding says where"):
        predict.export(tmp_path / "p.onnx", sharding=2, precision="fp16")
    with pytest.raises(UnsupportedError, match="6 elements on that axis are not enough for 7"):
        predict.export(tmp_path / "p.onnx", sharding=7)
    _, predict = jobs(stages)
    predict.export(tmp_path / "three.onnx", sharding=3)  # the third has nothing to do
    flow.clear_default_session()
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())

    @flow.global_function(type="predict", function_config=config)
    def mirrored(x: tp.ListNumpy.Placeholder((8, 5))) -> tp.ListNumpy:
        return dense(x, 6, "a")

    with pytest.raises(FlowError, match="mirrored"):
        mirrored.export(tmp_path / "p.onnx", sharding=2)
