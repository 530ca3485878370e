"""Repositories of `export_triton`, served by us and by the real Triton: the same answers."""

import json

import numpy as np
import pytest

from tests.serving.triton_jobs import TYPES
from tests.serving.triton_pair import KINDS

DRAWS = np.random.default_rng(11)


def drawn(shape, dtype="float32"):
    values = DRAWS.standard_normal(shape) if "float" in dtype else DRAWS.integers(0, 2, shape)
    return values.astype(dtype)


def kinds(rows, width=3, names=("float16", "float64", "int8", "uint8", "int32", "int64")):
    return {name: drawn((rows, width), name) for name in names}


REQUESTS = [
    ("conv", {"images": drawn((1, 1, 12, 12))}),
    ("conv", {"images": drawn((32, 1, 12, 12))}),
    ("digits", {"images": drawn((5, 1, 28, 28))}),
    ("fixed", {"images": drawn((3, 1, 12, 12))}),
    ("pair", {"scores": drawn((4, 5)), "number": drawn((4, 5), "int64")}),
    ("lookup", {"indices": drawn((6, 1), "int32")}),
    ("kinds", kinds(2)),
    ("types", kinds(2, names=TYPES)),
]  # fmt: skip
MODELS = sorted({model for model, _ in REQUESTS})


def same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        other = theirs[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        if array.dtype == np.object_:
            assert array.tolist() == other.tolist(), name
        else:
            assert array.tobytes() == other.tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("model", "feeds"), REQUESTS)
def test_outputs_are_equal_bit_for_bit(both, kind, model, feeds):
    ours, theirs = (server.infer(kind, model, feeds) for server in both.each())
    assert ours
    same(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_each_version_answers_for_itself(both, kind):
    feeds = {"images": drawn((2, 1, 28, 28))}
    found = {}
    for version in ("", "1", "2"):
        ours, theirs = (s.infer(kind, "digits", feeds, version=version) for s in both.each())
        same(ours, theirs)
        found[version] = ours["out/0"]
    assert (found[""] == found["2"]).all()
    assert (found["1"] != found["2"]).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [{"out/1": 0}, {"out/2": 0, "out/0": 0}, {"out/0": 2}])
def test_only_the_outputs_asked_for(both, kind, wanted):
    feeds = {"scores": drawn((3, 5)), "number": drawn((3, 5), "int64")}
    ours, theirs = (server.infer(kind, "pair", feeds, wanted=wanted) for server in both.each())
    assert set(ours) == set(wanted)
    same(ours, {name: theirs[name] for name in ours})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 99])
@pytest.mark.parametrize("model", ["digits", "conv"])
def test_classes_with_their_labels(both, kind, model, count):
    size = 28 if model == "digits" else 12
    feeds = {"images": drawn((2, 1, size, size))}
    ours, theirs = (
        server.infer(kind, model, feeds, wanted={"out/0": count}) for server in both.each()
    )
    same(ours, theirs)
    assert ours["out/0"].shape == (2, min(count, 10))
    assert b"digit" in ours["out/0"][0][0]


def json_request(feeds):
    names = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
    items = [{"name": name, "shape": array.shape, "datatype": names[str(array.dtype)],
              "data": array.tolist()} for name, array in feeds.items()]  # fmt: skip
    return json.dumps({"inputs": items}).encode()


@pytest.mark.parametrize(("model", "feeds"), REQUESTS[:6])
def test_json_without_bytes(both, model, feeds):
    ours, theirs = (server.ask(f"/v2/models/{model}/infer", json_request(feeds))
                    for server in both.each())  # fmt: skip
    assert ours[0] == theirs[0] == 200
    ours, theirs = json.loads(ours[1]), json.loads(theirs[1])
    assert ours.keys() == theirs.keys()
    for output, other in zip(ours["outputs"], theirs["outputs"], strict=True):
        data, others = output.pop("data"), other.pop("data")
        assert output == other
        # the digits of a number may differ, but not the float32 that they stand for
        assert np.float32(data).tobytes() == np.float32(others).tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_the_metadata_is_equal(both, kind, model):
    ours, theirs = (server.describe(kind, "get_model_metadata", model) for server in both.each())
    assert ours == theirs
    if model == "digits":
        assert ours["versions"] == ["1", "2"]
        ours, theirs = (
            server.describe(kind, "get_model_metadata", model, "1") for server in both.each()
        )
        assert ours == theirs
        assert ours["versions"] == ["1"]


# what of a configuration must be equal: the rest are values that Triton fills in by itself
FIELDS = ("name", "backend", "max_batch_size", "version_policy", "dynamic_batching")
PORT = ("name", "data_type", "dims", "label_filename")


def stated(config):
    """The fields of config.pbtxt, without what Triton adds to it."""
    config = config.get("config", config)
    found = {name: config[name] for name in FIELDS if name in config}
    if "dynamic_batching" in found:
        delay = found["dynamic_batching"].get("max_queue_delay_microseconds", 0)
        found["dynamic_batching"] = int(delay)
    for name in ("input", "output"):
        found[name] = [
            {k: port[k] for k in PORT if port.get(k)} | {"is_column": "reshape" in port}
            for port in config[name]
        ]
    found["instances"] = [int(group["count"]) for group in config.get("instance_group", ())]
    found["model_warmup"] = [
        {"name": each["name"], "rows": each.get("batch_size", 0), "inputs": each["inputs"]}
        for each in config.get("model_warmup", ())
    ]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [m for m in MODELS if m != "types"])
def test_the_configuration_is_equal_as_far_as_it_is_stated(both, kind, model):
    ours, theirs = (
        stated(server.describe(kind, "get_model_config", model)) for server in both.each()
    )
    assert ours == theirs
    assert ours["model_warmup"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_lists_the_same_versions(both, kind):
    def rows(server):
        found = server.describe(kind, "get_model_repository_index")
        found = found["models"] if kind == "grpc" else found
        return sorted((row["name"], row["version"], row["state"]) for row in found)

    ours, theirs = map(rows, both.each())
    assert ours == theirs
    assert ("digits", "2", "READY") in ours


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_ready(both, kind):
    for server in both.each():
        assert server.call(kind, "is_server_live")
        assert server.call(kind, "is_server_ready")
        assert server.call(kind, "is_model_ready", "digits")
        assert server.call(kind, "is_model_ready", "digits", "1")
        assert not server.call(kind, "is_model_ready", "digits", "3")
        assert not server.call(kind, "is_model_ready", "none")


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_count_the_same_requests(both, kind):
    def counts(server):
        found = server.describe(kind, "get_inference_statistics", "lookup")["model_stats"][0]
        return int(found["inference_stats"]["success"].get("count", 0)), int(
            found.get("inference_count", 0)  # a message leaves zeros out
        )

    before = [counts(server) for server in both.each()]
    for server in both.each():
        for rows in (1, 3):
            server.infer(kind, "lookup", {"indices": drawn((rows, 1), "int32")})
    after = [counts(server) for server in both.each()]
    grown = [(a - b, c - d) for (a, c), (b, d) in zip(after, before, strict=True)]
    assert grown == [(2, 4), (2, 4)]
