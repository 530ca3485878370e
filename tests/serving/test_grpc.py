"""The protocol over gRPC, asked by Triton's own client."""

import numpy as np
import pytest
import tritonclient.grpc as client
from flow2onnx_serve.messages import MESSAGES
from tritonclient.grpc import service_pb2

from tests.serving.models import CLASSES, ELEMENTS, WIDTH

X = np.random.default_rng(7).standard_normal((3, WIDTH)).astype(np.float32)


@pytest.fixture
def triton(server):
    with client.InferenceServerClient(server.grpc) as found:
        yield found


def tensor(name, array, datatype="FP32"):
    found = client.InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array)
    return found


def raw(triton, **fields):
    return triton._client_stub.ModelInfer(service_pb2.ModelInferRequest(**fields))


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("mlp", "1")
    assert triton.get_server_metadata().name == "flow2onnx"
    metadata = triton.get_model_metadata("mlp", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", str(WIDTH)]}]
    assert metadata["outputs"] == [
        {"name": "out/0", "datatype": "FP32", "shape": ["-1", str(CLASSES)]}
    ]
    config = triton.get_model_config("mlp").config
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (8, True)
    index = triton.get_model_repository_index().models
    assert ("both", "2", "READY") in [(m.name, m.version, m.state) for m in index]


def test_results_are_the_sessions_bit_for_bit(triton, expected):
    answer = triton.infer("mlp", [tensor("x", X)], request_id="a7")
    np.testing.assert_array_equal(answer.as_numpy("out/0"), expected("mlp", x=X)["out/0"])
    assert answer.get_response().id == "a7"
    before = triton.get_inference_statistics("both", "1").model_stats[0].inference_count
    for version in ("1", "2"):
        answer = triton.infer("both", [tensor("x", X)], model_version=version)
        wanted = expected("both", int(version), x=X)["out/0"]
        np.testing.assert_array_equal(answer.as_numpy("out/0"), wanted)
    statistics = triton.get_inference_statistics("both", "1").model_stats[0]
    assert statistics.inference_count == before + 1


FIELDS = {"bool": "bool_contents", "int64": "int64_contents", "uint64": "uint64_contents",
          "float32": "fp32_contents", "float64": "fp64_contents"}  # fmt: skip


@pytest.mark.parametrize("is_typed", [False, True])
def test_every_element_type(triton, is_typed):
    values = np.random.default_rng(3).integers(0, 2, (2, 3))
    datatypes = {m.name: m.datatype for m in triton.get_model_metadata("types").inputs}
    arrays = {n: values.astype(np.uint16 if n == "bfloat16" else n) for n in ELEMENTS}
    inputs = [{"name": n, "datatype": datatypes[n], "shape": [2, 3]} for n in arrays]
    if is_typed:
        arrays["float16"] = arrays["bfloat16"] = None
        for item in inputs:
            if (array := arrays[item["name"]]) is None:
                continue
            kind = "uint_contents" if array.dtype.kind == "u" else "int_contents"
            field = FIELDS.get(item["name"], kind)
            item["contents"] = {field: array.reshape(-1).tolist()}
        with pytest.raises(client.grpc.RpcError) as caught:
            raw(triton, model_name="types", inputs=inputs)
        assert "use raw_input_contents" in caught.value.details()
        return
    given = [a.tobytes() for a in arrays.values()]
    answer = raw(triton, model_name="types", inputs=inputs, raw_input_contents=given)
    assert list(answer.raw_output_contents) == given


def test_typed_contents(triton, expected):
    item = {"name": "x", "datatype": "FP32", "shape": X.shape,
            "contents": {"fp32_contents": X.reshape(-1)}}  # fmt: skip
    answer = raw(triton, model_name="mlp", inputs=[item])
    assert answer.raw_output_contents[0] == expected("mlp", x=X)["out/0"].tobytes()


def test_streaming(triton, expected):
    answers = []
    triton.start_stream(lambda result, error: answers.append((result, error)))
    for name in ("mlp", "nothing", "mlp"):
        triton.async_stream_infer(name, [tensor("x", X)])
    triton.stop_stream()
    (first, _), (_, error), (last, _) = answers
    wanted = expected("mlp", x=X)["out/0"]
    np.testing.assert_array_equal(first.as_numpy("out/0"), wanted)
    np.testing.assert_array_equal(last.as_numpy("out/0"), wanted)
    assert "unknown model" in error.message()


def item(**changes):
    return {"name": "x", "datatype": "FP32", "shape": [1, WIDTH]} | changes


BYTES = bytes(4 * WIDTH)


@pytest.mark.parametrize(("fields", "code", "text"), [
    ({"model_name": "nothing"}, "NOT_FOUND", "unknown model"),
    ({"model_name": "mlp", "model_version": "4"}, "NOT_FOUND", "no version '4'"),
    ({"inputs": []}, "INVALID_ARGUMENT", "'x' is missing"),
    ({"inputs": [item()], "raw_input_contents": [BYTES, BYTES]}, "INVALID_ARGUMENT", "2 raw_input"),
    ({"inputs": [item()], "raw_input_contents": [BYTES[1:]]}, "INVALID_ARGUMENT", "63 bytes"),
    ({"inputs": [item(name="y")]}, "INVALID_ARGUMENT", "unexpected input 'y'"),
    ({"inputs": [item(datatype="BYTES")]}, "INVALID_ARGUMENT", "the request says 'BYTES'"),
    ({"inputs": [item(shape=[-1, WIDTH])]}, "INVALID_ARGUMENT", "no size"),
    ({"inputs": [item(shape=[0, 2**47, 2**47])]}, "INVALID_ARGUMENT", "no array can have"),
    ({"inputs": [item()]}, "INVALID_ARGUMENT", "0 elements"),
    ({"inputs": [item(), item()], "raw_input_contents": [BYTES, BYTES]}, "INVALID_ARGUMENT",
     "given twice"),
    ({"inputs": [item()], "raw_input_contents": [BYTES], "outputs": [{"name": "z"}]},
     "INVALID_ARGUMENT", "unexpected output"),
    ({"inputs": [item()], "raw_input_contents": [BYTES], "outputs": [{"name": "out/0"}] * 2},
     "INVALID_ARGUMENT", "twice"),
    ({"inputs": [item()], "raw_input_contents": [BYTES],
      "parameters": {"sequence_id": {"int64_param": 3}}}, "INVALID_ARGUMENT", "sequences"),
])  # fmt: skip
def test_what_is_wrong_with_a_request(triton, fields, code, text):
    with pytest.raises(client.grpc.RpcError) as caught:
        raw(triton, **({"model_name": "mlp"} | fields))
    assert caught.value.code().name == code
    assert text in caught.value.details()


def test_classes(triton, expected):
    outputs = [client.InferRequestedOutput("out/0", class_count=1)]
    texts = triton.infer("mlp", [tensor("x", X)], outputs=outputs).as_numpy("out/0")
    best = expected("mlp", x=X)["out/0"].argmax(axis=1)
    assert [int(t.decode().split(":")[1]) for t in texts.reshape(-1)] == best.tolist()


def test_the_messages_are_the_protocols():
    """Every field has the number and the type that Triton's own messages give it."""
    from google.protobuf import descriptor_pool

    theirs, count = descriptor_pool.Default(), 0
    seen, todo = set(), [MESSAGES[n].DESCRIPTOR for n in
                         ("ModelInferRequest", "ModelInferResponse", "ModelStreamInferResponse",
                          "ModelMetadataResponse", "ModelConfigResponse", "RepositoryIndexResponse",
                          "RepositoryModelLoadRequest", "ModelStatisticsResponse")]  # fmt: skip
    while todo:
        ours = todo.pop()
        if ours.full_name in seen:
            continue
        seen.add(ours.full_name)
        their = theirs.FindMessageTypeByName(ours.full_name)
        for field in ours.fields:
            other = their.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), field.full_name
            assert field.is_repeated == other.is_repeated
            todo += [field.message_type] if field.message_type else []
            count += 1
    assert count > 100
