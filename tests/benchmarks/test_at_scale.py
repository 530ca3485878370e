"""The page about many GPUs: its formulas, and what it says of them."""

import pytest

from benchmarks import at_scale
from benchmarks.at_scale import Cluster, Network, all_reduce_s, efficiency

NO_LATENCY = Cluster(inside_s=0.0, outside_s=0.0)


def test_one_gpu_sends_nothing():
    assert all_reduce_s(1e9, 1, Cluster()) == 0.0


def test_a_ring_passes_nearly_all_bytes_twice():
    assert all_reduce_s(1e9, 8, NO_LATENCY) == pytest.approx(2 * 7 / 8 * 1e9 / 150e9)
    within, between = 2 * 7 / 8 * 1e9 / 150e9, 2 * 127 / 128 * 1e9 / 8 / 12.5e9
    assert all_reduce_s(1e9, 1024, NO_LATENCY) == pytest.approx(within + between)


def test_latency_grows_with_the_logarithm_of_machines():
    times = [all_reduce_s(0.0, gpus, Cluster(buckets=1)) for gpus in (256, 512, 1024)]
    assert times[1] - times[0] == pytest.approx(2 * 15e-6)
    assert times[2] - times[1] == pytest.approx(2 * 15e-6)


def test_no_more_is_hidden_than_the_way_back_takes():
    network = Network("", operations=50e12 * 0.3, gradients=0.0)
    assert efficiency(network, 8, Cluster(), 0.1, 1.0) == pytest.approx((0.3, 1.0))
    assert efficiency(network, 8, Cluster(), 0.1, 0.0) == pytest.approx((0.4, 0.75))
    assert efficiency(network, 8, Cluster(), 0.5, 1.0)[0] == pytest.approx(0.6)


def test_sizes_are_those_of_the_papers():
    """25.6 million weights of ResNet-50, 335 million of BERT-large with its pooling layer."""
    resnet, bert, sharded, whole = at_scale.networks()
    assert resnet.gradients / 4 == pytest.approx(25.6e6, rel=0.01)
    assert bert.gradients / 4 == pytest.approx(335e6, rel=0.01)
    assert resnet.operations == pytest.approx(3 * 64 * 2 * 4.1e9, rel=0.02)
    assert whole.gradients - sharded.gradients == 512 * 1_000_000 * 4


def rows():
    common = {"peer": "flow2onnx", "ranks": 2, "hidden": 0.5, "collectives": [4, 2**22, 2**22]}
    here = {**common, "link": "one machine, loopback", "communication_ms": 8.0}
    times = {"compute_ms": 60.0, "communication_ms": 80.0, "ms": 120.0}  # 20 of 40 ms are hidden
    return [here, {**common, "link": "1000 Mbit/s", **times}]


def test_constants_are_medians_of_our_rows():
    other = {**rows()[0], "peer": "torch DDP", "hidden": 0.9, "communication_ms": 1.0}
    found = at_scale.constants({"rows": [*rows(), other]})
    assert (found.hidden, found.host) == (0.5, pytest.approx(2**23 / 0.008))
    with pytest.raises(SystemExit, match="no two ranks"):
        at_scale.constants({"rows": rows()[:1]})


def test_the_page_says_what_is_measured_and_what_assumed():
    text = at_scale.page({"rows": rows()})
    assert "way back lasts long enough for, 50 % is hidden" in text
    assert "94.5 % at 8 devices" in text
    assert "No such cluster has been measured" in text
    assert text.count("| BERT-large") == 2
