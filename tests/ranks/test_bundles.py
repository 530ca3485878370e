"""Bundles that several processes train, without the compiler."""

import numpy as np
import onnx
import onnx.parser
import pytest
from flow2onnx_runtime import BundleError, DistributedTrainer, Trainer
from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.slot_owners import divide_slots

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.api.support import rate
from tests.ranks.ranks import ROOT, ends, start_ranks

STEPS, RANKS, BATCH = 5, 2, 4


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """A file with a batch for each rank and step."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("batches") / "batches.npz"
    x = rng.normal(size=(STEPS * RANKS, BATCH, 6)).astype(np.float32)
    np.savez(path, x=x, y=rng.integers(0, 3, (STEPS * RANKS, BATCH)))
    return path


def of_a_job(folder, optimizer=None, drops=False, **options):
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(
        x: tp.Numpy.Placeholder((BATCH, 6)), y: tp.Numpy.Placeholder((BATCH,), flow.int64)
    ) -> tp.Numpy:
        x = flow.layers.batch_normalization(x, axis=1, name="n")
        x = flow.nn.dropout(x, rate=0.25, name="drop") if drops else x
        init = flow.random_normal_initializer(stddev=0.3)
        logits = flow.layers.dense(x, 3, kernel_initializer=init, name="d")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        (optimizer or flow.optimizer.Adam(rate(0.01))).minimize(loss)
        return loss

    job.export(folder, verify=False, **options)
    return folder


def of_a_model(folder, **options):
    """Of a model that another exporter might have written."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4, 6] x) => (float[4, 3] z)'
        " <float[6, 3] w> { z = MatMul(x, w) }"
    )
    weights = np.random.default_rng(4).normal(size=(6, 3)).astype(np.float32)
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    flow.make_trainable(model, "cross_entropy", "adam", lr=0.01, accumulate=True, **options).save(
        folder
    )
    return folder


def trained_alone(bundle, batches):
    """One process adds up the gradients of all ranks' batches before each update."""
    trainer, data = Trainer(bundle), np.load(batches)
    for step in range(STEPS):
        for rank in range(RANKS):
            i = step * RANKS + rank
            trainer.accumulate(data["x"][i], data["y"][i])
        trainer.update()
    return trainer.state_dict()


def of_lamb(folder):
    """With clipping by the norm of all, and a scale that overflows at first."""
    clipping = flow.optimizer.grad_clipping.by_global_norm(0.3)
    policy = flow.optimizer.loss_scale.dynamic_loss_scale(2.0**127, 2)
    lamb = flow.optimizer.LAMB(rate(0.01), grad_clipping=clipping, loss_scale_policy=policy)
    return of_a_job(folder, lamb, drops=True, distributed=True)


def with_averages(folder):
    """Of a model with averages of its weights, which its predict job "ema" reads."""
    return of_a_model(folder, ema=0.9)


@pytest.mark.parametrize(
    "make",
    [
        lambda f: of_a_job(f, drops=True, distributed=True),
        of_a_model,
        pytest.param(of_lamb, marks=pytest.mark.slow),
    ],
    ids=["job", "model", "lamb"],
)
def test_ranks_train_a_bundle_as_one_process_does(make, batches, tmp_path):
    bundle = make(tmp_path / "bundle")
    program = [str(ROOT / "tests/ranks/trainers.py"), str(bundle), str(batches), str(tmp_path)]
    results = ends(start_ranks(RANKS, program))
    assert all(status == 0 for status, _, _ in results), results
    found = [dict(np.load(tmp_path / f"{rank}.npz")) for rank in range(RANKS)]
    assert found[0].pop("kept bytes") == found[1].pop("kept bytes")
    assert not np.array_equal(found[0].pop("losses"), found[1].pop("losses"))
    expected = trained_alone(bundle, batches)
    saved = Trainer(bundle)
    saved.load(tmp_path / "state.safetensors")
    for name, value in expected.items():
        np.testing.assert_array_equal(found[0][name], found[1][name], name)
        np.testing.assert_array_equal(found[0][name], saved.state.read(name), name)
        if "moving" not in name:  # which are those of the first rank's rows
            np.testing.assert_allclose(found[0][name], value, rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["anew"]], ids=["plain", "loaded"])
@pytest.mark.parametrize("engine", ["torch", "mpi", "mpich"])
@pytest.mark.parametrize("make", [of_a_model, of_lamb, with_averages], ids=lambda f: f.__name__)
def test_optimizer_state_in_parts_changes_no_bit(make, engine, more, batches, tmp_path):
    bundle = make(tmp_path / "bundle")
    program, found = [str(ROOT / "tests/ranks/trainers.py"), str(bundle), str(batches)], []
    for folder, options in (("whole", []), ("parts", ["parts", *more])):
        (tmp_path / folder).mkdir()
        arguments = [*program, str(tmp_path / folder), *options]
        results = ends(start_ranks(RANKS, arguments, engine))
        assert all(status == 0 for status, _, _ in results), results
        found += [dict(np.load(tmp_path / folder / f"{rank}.npz")) for rank in range(RANKS)]
    kept = [one.pop("kept bytes") for one in found]
    assert sum(kept[2:]) < sum(kept[:2])
    for one, other in ((found[0], found[2]), (found[1], found[3])):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(other[name], value, name)
    saved = [
        (tmp_path / folder / "state.safetensors").read_bytes() for folder in ("whole", "parts")
    ]
    assert saved[0] == saved[1]


def test_one_process_is_a_world_of_one(batches, tmp_path):
    bundle, data = of_a_job(tmp_path / "bundle", distributed=True), np.load(batches)
    alone, distributed = Trainer(bundle), DistributedTrainer(bundle)
    for x, y in zip(data["x"], data["y"], strict=True):
        expected, found = alone.step(x, y), distributed.step_async(x, y).result()
        np.testing.assert_allclose(found["out/0"], expected["out/0"], rtol=0, atol=1e-6)
    assert (distributed.world.size, distributed.steps) == (1, alone.steps)
    for name, value in alone.state_dict().items():
        np.testing.assert_allclose(distributed.state.read(name), value, rtol=0, atol=1e-6)


def test_a_bundle_in_one_piece_is_refused(tmp_path):
    with pytest.raises(BundleError, match="holds the step in one model"):
        DistributedTrainer(of_a_job(tmp_path / "bundle"))


@pytest.mark.slow
def test_a_loss_of_one_rank_that_is_not_finite_ends_the_step_on_all(batches, tmp_path):
    """Rank 1 is given an infinity in its second batch; the state of both is as before it."""
    bundle = of_a_job(tmp_path / "bundle", distributed=True)
    arrays = dict(np.load(batches))
    arrays["x"][1 * RANKS + 1, 0, 0] = np.inf
    np.savez(tmp_path / "broken.npz", **arrays)
    program = [str(ROOT / "tests/ranks/trainers.py"), str(bundle), str(tmp_path / "broken.npz")]
    results = ends(start_ranks(RANKS, [*program, str(tmp_path), "finite"]))
    assert all(status == 0 for status, _, _ in results), results
    found = [dict(np.load(tmp_path / f"{rank}.npz")) for rank in range(RANKS)]
    for end in found:
        assert [int(step) for step in end.pop("refused")] == [1]
        del end["losses"]
    for name, value in found[0].items():
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(value, found[1][name], name)


def test_slots_are_divided_by_their_bytes(tmp_path):
    """Each variable's stay together; what predict jobs read all ranks have."""
    bundle = Bundle(of_a_job(tmp_path / "bundle", distributed=True))
    owners = divide_slots(bundle, 2)
    assert owners.slots == {
        "d-weight-m": 0, "d-weight-v": 0, "n-beta-m": 1, "n-beta-v": 1, "n-gamma-m": 1,
        "n-gamma-v": 1, "d-bias-m": 1, "d-bias-v": 1,
    }  # fmt: skip
    assert owners.moved == {"d-weight": 0, "n-beta": 1, "n-gamma": 1, "d-bias": 1}
    assert owners.elsewhere(1) == {"d-weight-m", "d-weight-v"}
    both = [set(owners.outputs_of(rank)) for rank in (0, 1)]
    assert both[0] | both[1] == set(owners.outputs)
    assert {"next/d-weight-gradients", "next/System-Train-Batches-job"} <= both[0] & both[1]
    averaged = divide_slots(Bundle(with_averages(tmp_path / "averaged")), 2)
    assert set(averaged.slots) == {"w-m", "w-v"}
    assert len(averaged.moved) == 2


def test_a_bundle_without_slots_has_none_in_parts(tmp_path):
    sgd = flow.optimizer.SGD(rate(0.1), momentum=0)
    bundle = of_a_job(tmp_path / "bundle", sgd, distributed=True)
    with pytest.raises(BundleError, match="no optimizer state"):
        divide_slots(Bundle(bundle), 2)
