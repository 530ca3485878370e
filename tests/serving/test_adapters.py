"""Adapters by name: each request is answered by the one it asks for, while they come and go."""

import asyncio
import json
import shutil

import numpy as np
import pytest
from flow2onnx_runtime.adapters import write_adapter
from flow2onnx_serve import grpc_encoding, http_encoding
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.inference import Inference, RequestedOutput
from flow2onnx_serve.messages import MESSAGES
from flow2onnx_serve.service import Service
from flow2onnx_serve.settings import Settings

from tests.imported.lora.sessions import feeds
from tests.serving.adapters import COUNT, IDS, drawn, expected_logits, folder_with_slots
from tests.serving.models import mlp, place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with slots, which the tests copy."""
    return folder_with_slots(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture
def served(folder, tmp_path):
    shutil.copytree(folder.path, tmp_path / "tiny")
    (tmp_path / "tiny" / "adapters").mkdir()
    return tmp_path / "tiny"


@pytest.fixture(scope="module")
def expected(folder):
    return expected_logits(folder)


def drive(path, scenario, **settings):
    async def main():
        service = Service(Settings(path, **settings), "0")
        try:
            await service.repository.refresh(at_once=True)
            return await scenario(service)
        finally:
            service.close()

    return asyncio.run(main())


async def ask(service, folder, adapter="", ids=IDS, name="tiny"):
    live = service.repository.find(name)
    given = feeds(folder, ids)
    arrays = [given[n] for n in live.version.inputs]
    request = Inference("", arrays, (RequestedOutput("logits"),), None, adapter)
    ((_, _, found),) = await service.infer(live, request)
    return found


async def settle(service):
    await service.repository.refresh()
    await service.repository.refresh()


def rows(service):
    return {r["name"]: (r["state"], r["reason"]) for r in service.adapters("tiny")["adapters"]}


def test_a_hundred_at_once_and_each_answers_as_its_own(folder, served, expected):
    adapters = {f"a{i}": drawn(i) for i in range(COUNT)}
    for name, adapter in adapters.items():
        write_adapter(served / "adapters" / f"{name}.onnx_adapter", adapter)

    async def scenario(service):
        assert len(rows(service)) == COUNT
        names = ["", *adapters] * 2
        return names, await asyncio.gather(*(ask(service, folder, n) for n in names))

    names, found = drive(served, scenario)
    for name, logits in zip(names, found, strict=True):
        np.testing.assert_array_equal(logits, expected(adapters.get(name)))
    assert len({x.tobytes() for x in found}) == COUNT + 1


def test_files_come_change_and_go(folder, served, expected):
    where = served / "adapters"

    async def scenario(service):
        with pytest.raises(RequestError, match="has no adapter 'one'") as none:
            await ask(service, folder, "one")
        assert (none.value.status, "put NAME.onnx_adapter" in none.value.hint) == (404, True)
        write_adapter(where / "one.onnx_adapter", drawn(1))
        write_adapter(where / "peft", drawn(2, scale=0.5))
        await service.repository.refresh()
        assert rows(service) == {}  # not at rest yet
        await service.repository.refresh()
        assert rows(service) == {"one": ("READY", ""), "peft": ("READY", "")}
        np.testing.assert_array_equal(await ask(service, folder, "one"), expected(drawn(1)))
        np.testing.assert_array_equal(
            await ask(service, folder, "peft"), expected(drawn(2, scale=0.5))
        )
        with pytest.raises(RequestError, match="no adapter 'onee'") as near:
            await ask(service, folder, "onee")
        assert near.value.hint == "did you mean one?"
        write_adapter(where / "one.onnx_adapter", drawn(3))
        shutil.rmtree(where / "peft")
        await settle(service)
        np.testing.assert_array_equal(await ask(service, folder, "one"), expected(drawn(3)))
        assert list(rows(service)) == ["one"]
        (where / "one.onnx_adapter").write_bytes(b"nothing of the kind")
        write_adapter(where / "two.onnx_adapter", drawn(3, columns=1))
        await settle(service)
        assert "kept as it was: " in rows(service)["one"][1]
        np.testing.assert_array_equal(await ask(service, folder, "one"), expected(drawn(3)))
        with pytest.raises(RequestError, match="not ready: the adapter is for another model"):
            await ask(service, folder, "two")
        (where / "one.onnx_adapter").unlink()
        (where / "two.onnx_adapter").unlink()
        await settle(service)
        assert rows(service) == {}
        np.testing.assert_array_equal(await ask(service, folder), expected())

    drive(served, scenario)


def test_a_repository_and_a_folder_elsewhere(folder, tmp_path, expected):
    shutil.copytree(folder.path, tmp_path / "repository" / "tiny" / "1")
    for where in (tmp_path / "repository" / "tiny" / "adapters", tmp_path / "elsewhere"):
        where.mkdir()
        write_adapter(where / "x.onnx_adapter", drawn(4))

    async def scenario(service):
        np.testing.assert_array_equal(await ask(service, folder, "x"), expected(drawn(4)))

    drive(tmp_path / "repository", scenario)

    async def by_file(service):
        found = await ask(service, folder, "x", name="model")
        np.testing.assert_array_equal(found, expected(drawn(4)))

    drive(folder.model, by_file, adapters=tmp_path / "elsewhere")


def test_a_model_without_slots(tmp_path):
    place(tmp_path, "tiny", mlp())
    (tmp_path / "tiny" / "adapters").mkdir()
    write_adapter(tmp_path / "tiny" / "adapters" / "x.onnx_adapter", drawn(1))

    async def scenario(service):
        assert rows(service)["x"][0] == "UNAVAILABLE"
        assert "no slots for adapters" in rows(service)["x"][1]
        with pytest.raises(RequestError, match="no slots for adapters") as error:
            service.repository.find("tiny").adapters.find("x")
        assert error.value.status == 503

    drive(tmp_path, scenario)


@pytest.mark.parametrize("value", [3, None, ["x"], True])
def test_a_name_that_is_none(value):
    body = json.dumps({"inputs": [], "parameters": {"adapter": value}}).encode()
    with pytest.raises(RequestError, match="not a name"):
        http_encoding.decode(body, None, {}, {})


def test_names_in_both_protocols():
    body = json.dumps({"inputs": [], "parameters": {"adapter": "x"}}).encode()
    assert http_encoding.decode(body, None, {}, {}).adapter == "x"
    assert http_encoding.decode(b'{"inputs": []}', None, {}, {}).adapter == ""
    make = MESSAGES["ModelInferRequest"]
    assert grpc_encoding.decode(make(), {}, {}).adapter == ""
    message = make()
    message.parameters["adapter"].string_param = "x"
    assert grpc_encoding.decode(message, {}, {}).adapter == "x"
    message.parameters["adapter"].int64_param = 3
    with pytest.raises(RequestError, match="not a name"):
        grpc_encoding.decode(message, {}, {})
