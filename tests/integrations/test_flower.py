"""One bundle, learnt by Flower's Message API on clients in Python, in C and in a browser."""

import contextlib
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from flow2onnx_runtime import Options, Trainer, load_safetensors

from tests.integrations.page import ROOT, needs, run_section

pytestmark = [pytest.mark.slow, needs("flwr")]

MLP = ROOT / "runtime" / "conformance" / "mlp"
FEEDS = MLP / "feeds.safetensors"
CLIENTS = ROOT / "tests" / "integrations" / "clients"


def local_grid(apps):
    """A Grid of Flower whose nodes are ClientApps in this process, each asked in its turn."""
    from flwr.app import Context, RecordDict
    from flwr.serverapp import Grid

    class LocalGrid(Grid):
        """Messages go straight to the apps."""

        def set_run(self, run_id=None, **settings):
            """Nothing: there is one run."""

        @property
        def run(self):
            """No run that anybody asks about."""
            raise NotImplementedError

        def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
            """Flower makes messages itself by now."""
            raise NotImplementedError

        def get_node_ids(self):
            """The nodes."""
            return range(len(apps))

        def push_messages(self, messages):
            """Of use only to those who do not wait."""
            raise NotImplementedError

        def pull_messages(self, message_ids):
            """Of use only to those who do not wait."""
            raise NotImplementedError

        def send_and_receive(self, messages, *, timeout=None):
            """The answers of the nodes."""
            answers = []
            for message in messages:
                number = message.metadata.dst_node_id
                context = Context(1, number, {"partition-id": number}, RecordDict(), {})
                answers.append(apps[number](message, context))
            return answers

    return LocalGrid()


def batches(first, count):
    """Some of the recorded batches, as `fit` takes them."""
    feeds, _ = load_safetensors(FEEDS)
    return [{name: array[i] for name, array in feeds.items()} for i in range(first, first + count)]


def run_server(server, apps, monkeypatch):
    """Run a ServerApp on nodes in this process."""
    from flwr.app import Context, RecordDict

    with contextlib.suppress(ImportError):  # newer releases ask the process which run it is
        from flwr.supercore.task_identity import TaskIdentity

        for name in ("_run_id", "_task_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1)
    server(local_grid(apps), Context(1, 0, {}, RecordDict(), {}))


def recorded(learn, found):
    """A client whose results are kept in a list."""

    def record(values, config):
        found.append(learn(values, config))
        return found[-1]

    return record


def chosen(learn, node):
    """How every node learns."""
    return learn


def python_client(first, count):
    from flow2onnx.integrations.flower import Learned, load_variables, variables

    def learn(values, config):
        trainer = Trainer(MLP / "bundle", Options(intra_op_threads=1))
        load_variables(trainer, values)
        rows = 0
        for batch in batches(first, count):
            trainer.step(**batch)
            rows += len(batch["labels"])
        return Learned(variables(trainer), rows, {})

    return learn


def c_program(folder):
    """The client in C; a skip where it cannot be built."""
    import onnxruntime

    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler")
    make = ["make", "-s", "-C", ROOT / "runtime" / "c", f"OUT={folder}", "ORT=.",
            f"{folder}/flow2onnx_runtime.c"]  # fmt: skip
    subprocess.run([str(word) for word in make], check=True)
    subprocess.run(
        ["cc", "-std=c11", "-O1", "-DFLOW2ONNX_LOAD_ORT", f"-I{ROOT}/runtime/c",
         CLIENTS / "client.c", folder / "flow2onnx_runtime.c", "-o", folder / "client", "-lm",
         "-ldl"], check=True)  # fmt: skip
    (library,) = (ROOT / onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*.*")
    return folder / "client", str(library)


def test_three_runtimes_in_one_round_equal_numpy(folder, monkeypatch):
    from flow2onnx.integrations.flower import by_command, client_app, server_app, variables

    if shutil.which("node") is None or not (ROOT / "runtime/js/node_modules").exists():
        pytest.skip("no Node packages: make tools")
    if shutil.which("chromium") is None:
        pytest.skip("no Chromium")
    program, library = c_program(folder)
    monkeypatch.setenv("FLOW2ONNX_ORT_LIBRARY", library)
    bundle, feeds = MLP / "bundle", [FEEDS]
    found = []
    learns = [
        python_client(0, 1),
        by_command(bundle, [program, *feeds, "1", "2"]),
        by_command(bundle, ["node", CLIENTS / "browser.mjs", *feeds, "1", "3"]),
    ]
    apps = [client_app(partial(chosen, recorded(one, found))) for one in learns]
    run_server(server_app(bundle, rounds=1, save="averaged.safetensors"), apps, monkeypatch)

    assert sorted(learned.examples for learned in found) == [8, 16, 24]
    begun = Trainer(bundle)
    begun.load("averaged.safetensors")
    averaged = variables(begun)
    total = sum(learned.examples for learned in found)
    for name, array in averaged.items():
        wanted = sum(
            learned.variables[name].astype(np.float64) * (learned.examples / total)
            for learned in found
        )
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-7)
    # each of them learnt what Python learns of the same batches
    for rows, (first, count) in {8: (0, 1), 16: (1, 2), 24: (1, 3)}.items():
        (learned,) = (each for each in found if each.examples == rows)
        wanted = python_client(first, count)(variables(Trainer(bundle)), {}).variables
        for name, array in wanted.items():
            np.testing.assert_allclose(learned.variables[name], array, rtol=1e-4, atol=1e-5)


def test_the_page_as_pasted(folder, monkeypatch):
    names = run_section("Flower")
    run_server(names["server"], [names["client"], names["client"]], monkeypatch)
    trainer = Trainer("bundle")
    before = trainer.evaluate(names["x"], names["labels"])
    trainer.load("averaged.safetensors")
    after = trainer.evaluate(names["x"], names["labels"])
    (loss,) = trainer.manifest.losses
    assert after[loss].mean() < before[loss].mean()


def test_a_client_of_another_bundle_is_refused():
    from flow2onnx.integrations.flower import load_variables, variables

    trainer = Trainer("bundle")
    values = variables(trainer)
    with pytest.raises(ValueError, match=r"has shape \(1,\)"):
        load_variables(trainer, {**values, "fc1.bias": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match="missing"):
        load_variables(trainer, {"fc1.bias": values["fc1.bias"]})
    with pytest.raises(ValueError, match="no variable"):
        load_variables(trainer, {**values, "other": np.zeros(1, np.float32)})


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('no camera')", "ended with 1: no camera"),
        ("print('done')", "said 'done'"),
    ],
)
def test_a_command_that_fails(program, words):
    from flow2onnx.integrations.flower import by_command, variables

    learn = by_command("bundle", [sys.executable, "-c", program])
    with pytest.raises(RuntimeError, match=words):
        learn(variables(Trainer("bundle")), {})
