"""Adapters over HTTP and gRPC, with Triton's clients: each answer has the bits of its own session.

While clients ask, adapters come, are replaced, damaged and removed.
"""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from flow2onnx_runtime.adapters import write_adapter

from flow2onnx.imported import keep_adapter
from tests.imported.lora.sessions import feeds
from tests.serving.adapters import COUNT, IDS, drawn, expected_logits, folder_with_slots
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
CLIENTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
NAMES = ["", *(f"a{i}" for i in range(COUNT))]
LEAST = 3 * len(NAMES)  # answers of each client while adapters change


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_with_slots(tmp_path_factory.mktemp("served") / "tiny")


class Asker:
    """A client of one protocol that asks a model for logits."""

    def __init__(self, kind, server, folder, model="tiny"):
        self.library, self.model = CLIENTS[kind], model
        self.connection = self.library.InferenceServerClient(getattr(server, kind))
        self.inputs = []
        for name, array in feeds(folder, IDS).items():
            datatype = "INT64" if array.dtype.kind == "i" else "FP32"
            self.inputs.append(self.library.InferInput(name, array.shape, datatype))
            self.inputs[-1].set_data_from_numpy(array)
        self.outputs = [self.library.InferRequestedOutput("logits")]

    def ask(self, adapter=""):
        parameters = {"adapter": adapter} if adapter else None
        found = self.connection.infer(
            self.model, self.inputs, outputs=self.outputs, parameters=parameters
        )
        return found.as_numpy("logits")

    def error(self, adapter):
        with pytest.raises(Exception) as error:  # noqa: PT011  # both libraries have one of their own
            self.ask(adapter)
        return str(error.value)


class Truth:
    """The logits that each name has had, in order, and since which one they may be given."""

    def __init__(self, folder):
        self.logits = expected_logits(folder)
        self.known = {name: [self.logits(drawn(i))] for i, name in enumerate(NAMES[1:])}
        self.known[""] = [self.logits()]
        self.first = dict.fromkeys(self.known, 0)

    def holds(self, name, found, first=0):
        return any(np.array_equal(found, one) for one in self.known[name][first:])


def test_a_hundred_adapters_of_two_protocols_while_they_change(folder, tmp_path, serving):
    served = tmp_path / "tiny"
    shutil.copytree(folder.path, served)
    where = served / "adapters"
    where.mkdir()
    for i, name in enumerate(NAMES[1:]):
        write_adapter(where / f"{name}.onnx_adapter", drawn(i))
    truth, server = Truth(folder), serving(served, "--grpc-port", 0, "--poll", "0.1")
    is_over, wrong, counts = threading.Event(), [], []

    def ask_on(kind, seed):
        asker, rng, count = Asker(kind, server, folder), np.random.default_rng(seed), 0
        while count < LEAST or not is_over.is_set():
            name = NAMES[rng.integers(len(NAMES))] if count % 3 else "a7"
            first = truth.first[name]  # before it is asked: an old answer may be slow to come
            if not truth.holds(name, asker.ask(name), first):
                wrong.append((kind, name))
            count += 1
        counts.append(count)

    status, listed = server.ask("/v2/models/tiny/adapters")[::2]
    assert (status, len(json.loads(listed)["adapters"])) == (200, COUNT)
    with ThreadPoolExecutor(4) as threads:
        clients = [threads.submit(ask_on, kind, i) for i, kind in enumerate([*CLIENTS] * 2)]
        try:
            change_them(server, where, truth, folder)
        finally:
            is_over.set()
        for client in clients:
            client.result()
    assert not wrong
    assert len(counts) == 4


def change_them(server, where, truth, folder):
    """Replace, damage, add and remove adapters while clients ask for others, and for these."""
    askers = [Asker(kind, server, folder) for kind in CLIENTS]

    def settled(condition):
        wait_until(lambda: all(map(condition, askers)))

    for seed in (1001, 1002, 1003):  # one that is asked for all the time
        new = truth.logits(drawn(seed))
        truth.known["a7"].append(new)
        write_adapter(where / "a7.onnx_adapter", drawn(seed))
        settled(lambda asker, new=new: np.array_equal(asker.ask("a7"), new))
        truth.first["a7"] += 1
    whole = (where / "a8.onnx_adapter").read_bytes()
    (where / "a8.onnx_adapter").write_bytes(whole[: len(whole) // 2])
    write_adapter(where / "other.onnx_adapter", drawn(3, columns=1))
    (where / "junk.onnx_adapter").write_bytes(b"nothing of the kind")
    write_adapter(where / "later.onnx_adapter", drawn(1004))
    server.wait_for("an adapter was not loaded", adapter="a8", still_answering=True)
    settled(lambda asker: "another model" in asker.error("other"))
    settled(lambda asker: "is no adapter" in asker.error("junk"))
    server.wait_for("an adapter answers", adapter="later")
    for asker in askers:
        np.testing.assert_array_equal(asker.ask("later"), truth.logits(drawn(1004)))
        assert truth.holds("a8", asker.ask("a8"))  # as it was before it was damaged
        assert "has no adapter 'latr' (did you mean later?)" in asker.error("latr")
    (where / "later.onnx_adapter").unlink()
    server.wait_for("an adapter is gone", adapter="later")
    assert all("has no adapter 'later'" in asker.error("later") for asker in askers)


def test_adapters_as_models_of_a_repository(folder, tmp_path, serving):
    """Triton's backend takes no adapter: there each one is a model that shares the data file."""
    for seed in (1, 2):
        (tmp_path / f"a{seed}").mkdir()
        keep_adapter(folder.path, drawn(seed), tmp_path / f"a{seed}" / "1")
    server, truth = serving(tmp_path, "--grpc-port", 0), expected_logits(folder)
    for kind in CLIENTS:
        for seed in (1, 2):
            found = Asker(kind, server, folder, f"a{seed}").ask()
            np.testing.assert_allclose(found, truth(drawn(seed)), rtol=1e-5, atol=1e-5)
