"""The example of training in a cluster: manifests, images, and what its operators tell a rank."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.ranks.ranks import ROOT

EXAMPLE = ROOT / "examples" / "distributed"
JOBS = {"pytorchjob": "PyTorchJob", "mpijob": "MPIJob"}
RECIPE = (EXAMPLE / "Dockerfile").read_text("utf-8")


@pytest.fixture
def yaml():
    return pytest.importorskip("yaml")


def manifest(yaml, name):
    return yaml.safe_load((EXAMPLE / "k8s" / f"{name}.yaml").read_text("utf-8"))


def replicas(document):
    (found,) = [v for k, v in document["spec"].items() if k.endswith("ReplicaSpecs")]
    return found


def container(document, role):
    (found,) = replicas(document)[role]["template"]["spec"]["containers"]
    return found


def stages():
    """The instructions of each image, as (name, text), by the image's name."""
    parser = pytest.importorskip("dockerfile_parse").DockerfileParser(
        str(EXAMPLE / "Dockerfile"), cache_content=True
    )
    found = {}
    for step in parser.structure:
        if step["instruction"] == "FROM":
            stage = found.setdefault(step["value"].partition(" AS ")[2], [])
        if step["instruction"] != "COMMENT":
            stage.append((step["instruction"], step["value"]))
    return found


@pytest.mark.parametrize("name", JOBS)
def test_jobs_fit_kubeflow(name, yaml):
    schema = pytest.importorskip("jsonschema")
    known = yaml.safe_load((Path(__file__).parent / "kubeflow.yaml").read_text("utf-8"))
    document = manifest(yaml, name)
    assert document["kind"] == JOBS[name]
    own = {**known[JOBS[name]], "$defs": known["$defs"]}
    schema.Draft202012Validator.check_schema(own)
    schema.validate(document, own)
    for wrong in ({"slots": 2}, {"runPolicy": {"backOff": 1}}):
        with pytest.raises(schema.ValidationError):
            schema.validate({**document, "spec": {**document["spec"], **wrong}}, own)


@pytest.mark.parametrize("name", JOBS)
def test_pods_fit_kubernetes(name, yaml):
    kubernetes = pytest.importorskip("kubernetes_validate")
    for role in replicas(manifest(yaml, name)).values():
        pod = {"apiVersion": "v1", "kind": "Pod", **role["template"]}
        kubernetes.validate(pod, kubernetes.latest_version(), strict=True)
        rights = pod["spec"]["securityContext"]
        (only,) = pod["spec"]["containers"]
        assert rights["runAsNonRoot"]
        assert f"--uid {rights['runAsUser']} " in RECIPE
        assert only["securityContext"]["readOnlyRootFilesystem"]
        assert not only["securityContext"]["allowPrivilegeEscalation"]
        wrong = {**pod, "spec": {**pod["spec"], "container": []}}
        with pytest.raises(kubernetes.ValidationError):
            kubernetes.validate(wrong, kubernetes.latest_version(), strict=True)


def test_the_claim_is_the_one_that_is_mounted(yaml):
    kubernetes = pytest.importorskip("kubernetes_validate")
    claim = manifest(yaml, "checkpoints")
    kubernetes.validate(claim, kubernetes.latest_version(), strict=True)
    pods = [
        replicas(manifest(yaml, "pytorchjob"))["Master"],
        replicas(manifest(yaml, "pytorchjob"))["Worker"],
        replicas(manifest(yaml, "mpijob"))["Worker"],
    ]
    for pod in pods:
        spec = pod["template"]["spec"]
        (volume,) = [v for v in spec["volumes"] if "persistentVolumeClaim" in v]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
        assert mounts[volume["name"]] == "/checkpoints"
        assert mounts.keys() == {v["name"] for v in spec["volumes"]}


def test_the_operator_of_torch_knows_its_container(yaml):
    document = manifest(yaml, "pytorchjob")
    for role in ("Master", "Worker"):
        found = container(document, role)
        assert found["name"] == "pytorch"
        assert [p["name"] for p in found["ports"]] == ["pytorchjob-port"]
        program, *arguments = found["command"]
        assert (program, arguments[-2:]) == ("torchrun", ["train.py", "/checkpoints/circle"])
        assert found["image"] == re.search(r"--target torch -t (\S+)", RECIPE)[1]


def test_mpirun_starts_as_many_ranks_as_there_are_slots(yaml):
    document = manifest(yaml, "mpijob")
    launcher, worker = container(document, "Launcher"), container(document, "Worker")
    program, *arguments = launcher["command"]
    slots = document["spec"]["slotsPerWorker"] * replicas(document)["Worker"]["replicas"]
    assert program == "mpirun"
    assert arguments[arguments.index("-n") + 1] == str(slots)
    assert arguments[-4:] == ["-m", "mpi4py", "train.py", "/checkpoints/circle"]
    sent = [b for a, b in itertools.pairwise(arguments) if a == "-x"]
    assert {v["name"] for v in launcher["env"]} <= set(sent)
    assert {launcher["image"], worker["image"]} == {re.search(r"--target mpi -t (\S+)", RECIPE)[1]}


def test_pods_reach_each_other_by_ssh(yaml):
    document = manifest(yaml, "mpijob")
    worker = container(document, "Worker")
    settings = dict(
        line.split(maxsplit=1) for line in (EXAMPLE / "sshd_config").read_text().splitlines()[1:]
    )
    client = (EXAMPLE / "ssh_config").read_text()
    assert settings["HostKey"].startswith(document["spec"]["sshAuthMountPath"] + "/")
    assert settings["PasswordAuthentication"] == "no"
    (port,) = worker["ports"]
    assert int(settings["Port"]) == port["containerPort"]
    assert f"Port {settings['Port']}\n" in client
    assert f"sshd_config {worker['command'][-1]}\n" in RECIPE


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_images_are_built_of_what_is_there(engine):
    found = stages()
    base = r"python:\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}"
    assert len({re.match(base, steps[0][1])[0] for steps in found.values()}) == 1
    shown = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in shown
    own = found["build"] + found[engine]
    for sources in [text.split()[:-1] for name, text in own if name == "COPY"]:
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in shown, f"{source} is kept from the build"
    names = [name for name, _ in found[engine]]
    assert names.index("USER") < names.index("CMD")
    library = {"torch": "torch", "mpi": "mpi4py"}[engine]
    locked = (EXAMPLE / f"{engine}.lock").read_text("utf-8")
    assert re.search(rf"^{library}==\S+ \\\n    --hash=sha256:", locked, re.MULTILINE)
    for package in ("numpy", "onnx", "onnx-ir", "onnxruntime", "protobuf", "safetensors"):
        assert f"\n{package}==" in locked


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_an_image_runs_the_program_by_default(engine):
    (command,) = [json.loads(text) for name, text in stages()[engine] if name == "CMD"]
    assert command[-2:] == ["train.py", "/tmp/circle"]


def test_the_program_trains_and_goes_on(tmp_path):
    def run(steps):
        program = [sys.executable, EXAMPLE / "train.py", tmp_path / "kept", "--steps", str(steps)]
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 0, done.stderr
        return [float(line.split()[-1]) for line in done.stdout.splitlines()]

    first, second = run(200), run(400)
    assert (len(first), len(second)) == (2, 2)
    assert np.isfinite(first + second).all()
    assert second[-1] < first[0] < 0.6
