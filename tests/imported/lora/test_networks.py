"""Adapters of models that are no language models: products and convolutions, losses by name."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from flow2onnx_runtime import Trainer
from flow2onnx_runtime.adapters import read_adapter, write_adapter

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.imported import adapter_of, keep_adapter, merge_adapter, write_slots
from tests.imported.lora.convolutions import TARGETS, batches, write_network
from tests.imported.lora.record_peft import PLACE, our_network
from tests.imported.lora.sessions import active


def logits(path, images, options=None):
    settings = ort.SessionOptions()
    settings.log_severity_level, settings.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(str(path), settings, ["CPUExecutionProvider"])
    return session.run(["logits"], {"images": images}, options)[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model file, a trainer after ten steps on it, and their losses."""
    path = write_network(tmp_path_factory.mktemp("network") / "m" / "network.onnx")
    trainer = our_network(path).trainer()
    losses = [float(trainer.step(images=x, labels=y)["loss"]) for x, y in batches()]
    return path, trainer, losses


def test_ten_steps_equal_those_of_peft(trained):
    _, trainer, losses = trained
    recorded = np.load(PLACE)
    np.testing.assert_allclose(losses, recorded["network/losses"], rtol=2e-5)
    pairs = adapter_of(trainer).pairs
    assert set(pairs) == set(TARGETS)
    for module, pair in pairs.items():
        for found, side in zip(pair, "AB", strict=True):
            wanted = recorded[f"network/{module}/{side}"]
            wanted = wanted.T if wanted.ndim == 2 else wanted
            np.testing.assert_allclose(found, wanted, atol=2e-6, err_msg=f"{module} {side}")


def test_files_slots_and_weights_with_the_adapter(trained, tmp_path):
    path, trainer, _ = trained
    images, _ = next(batches())
    wanted = trainer.predict(images=images)["logits"]
    adapter = adapter_of(trainer)
    write_adapter(tmp_path / "x.onnx_adapter", adapter)
    write_adapter(tmp_path / "peft", adapter)
    assert read_adapter(tmp_path / "peft").ranks == {"conv1": 4, "conv2": 6, "conv3": 4, "fc": 4}
    write_slots(path, tmp_path / "slots", TARGETS)
    served, base = tmp_path / "slots" / path.name, logits(path, images)
    np.testing.assert_array_equal(logits(served, images), base)
    options, held = active(tmp_path / "x.onnx_adapter")
    np.testing.assert_allclose(logits(served, images, options), wanted, atol=1e-5)
    keep_adapter(path, read_adapter(tmp_path / "peft"), tmp_path / "kept")
    np.testing.assert_allclose(logits(tmp_path / "kept" / path.name, images), wanted, atol=1e-5)
    with pytest.raises(UnsupportedError, match="conv2 is a convolution of 3 groups"):
        merge_adapter(path, adapter, tmp_path / "merged")
    few = our_network_without_groups(path)
    for x, y in batches():
        few.step(images=x, labels=y)
    merge_adapter(path, adapter_of(few), tmp_path / "merged")
    found = logits(tmp_path / "merged" / path.name, images)
    np.testing.assert_allclose(found, few.predict(images=images)["logits"], atol=1e-5)
    assert np.abs(found - base).max() > 0.01
    del held


def our_network_without_groups(path):
    made = flow.lora_network(path, "cross_entropy", 4, accumulate=True, lr=1e-2)
    assert {n.partition(".")[0] for n in made.trained} == {"conv1", "conv3", "fc"}
    return made.trainer()


@pytest.mark.slow
def test_dropout_a_start_and_a_bundle(trained, tmp_path):
    path, trainer, _ = trained
    images, labels = next(batches())
    start = adapter_of(trainer)
    made = flow.lora_network(
        path, "cross_entropy", targets=TARGETS, start=start, dropout=0.4, lr=1e-9
    )
    made.save(tmp_path / "bundle")
    again = Trainer(tmp_path / "bundle")
    found = again.predict(images=images)["logits"]
    np.testing.assert_allclose(found, trainer.predict(images=images)["logits"], atol=1e-6)
    drawn = {float(again.step(images=images, labels=labels)["loss"]) for _ in range(6)}
    assert len(drawn) > 3


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"targets": "conv2", "rank": 4}, ArgumentError, "a convolution of 3 groups"),
        ({"targets": "conv9"}, ArgumentError, "'conv9' matches no product"),
        ({"rank": 40}, ArgumentError, "conv1 is a matrix of 27 x 6"),
        ({"trained": "fc.weight"}, ArgumentError, "adapters alone are trained"),
        ({"packs": True}, ArgumentError, "packs is for language models"),
    ],
)
def test_wrong_settings_are_named(tmp_path, options, error, match):
    path = write_network(tmp_path / "m.onnx")
    with pytest.raises(error, match=match):
        flow.lora_network(path, "cross_entropy", **options)


def test_an_adapter_of_a_language_model_is_another_matter(tmp_path):
    path = write_network(tmp_path / "m.onnx")
    model = onnx.load(path)
    del model.graph.initializer[:]
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match="no product with a weight"):
        flow.lora_network(path, "cross_entropy")
