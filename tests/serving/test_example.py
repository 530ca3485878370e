"""The example of serving: what its README says is done, what its manifests say is checked."""

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import flow2onnx_serve
import pytest
from flow2onnx_serve.cli import serve

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "serving"
README = (EXAMPLE / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^    ((?:python|flow2onnx|flow2onnx-serve|sh) .*)$", README, re.MULTILINE)
SAFE = re.findall(r"^    ((?:openssl|SSL_CERT_FILE|CURL_CA_BUNDLE)[ =].*)$", README, re.MULTILINE)
MANIFESTS = sorted([*EXAMPLE.glob("k8s/*.yaml"), *EXAMPLE.glob("kserve/*.yaml")])
KUBERNETES = [p for p in MANIFESTS if p.parent.name == "k8s" and p.stem != "kustomization"]
KSERVE = [p for p in MANIFESTS if p.parent.name == "kserve"]
IMAGE = f"flow2onnx-serve:{flow2onnx_serve.__version__}"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(
        str(ROOT / part) for part in (".", "runtime/python", "runtime/server")
    )
}


def words(command, folder, url):
    """A command of the README, for files in `folder` and a server at `url`."""
    text = command.replace("demo/serving", str(folder)).replace("http://localhost:8000", url)
    first, *rest = shlex.split(text)
    python = [sys.executable]
    programs = {
        "python": python,
        "flow2onnx": [*python, "-m", "flow2onnx"],
        "flow2onnx-serve": [*python, "-m", "flow2onnx_serve"],
    }
    return [*programs.get(first, [first]), *rest]


def run(arguments):
    done = subprocess.run(
        arguments, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder after the commands before the server's."""
    folder = tmp_path_factory.mktemp("example") / "serving"
    for command in itertools.takewhile(lambda c: "flow2onnx-serve" not in c, COMMANDS):
        run(words(command, folder, ""))
    return folder


@pytest.fixture
def answering(trained, serving):
    (command,) = (c for c in COMMANDS if "flow2onnx-serve" in c)
    _, models, *options = shlex.split(command.replace("demo/serving", str(trained)))
    options = [option for option in options if option not in ("8000", "--port")]
    return serving(Path(models), *(o if o != "8001" else "0" for o in options))


def answers(text):
    return re.findall(r"^answers: (.*)$", text, re.MULTILINE)


def test_the_readme_can_be_followed(trained, answering):
    pytest.importorskip("tritonclient.http")
    asking = [c for c in COMMANDS if re.search(r"client\.|in_process", c)]
    assert len(asking) == 4
    url = f"http://{answering.http}"
    told = [run(words(c, trained, url)) for c in asking if shutil.which("curl") or ".sh" not in c]
    json_client, triton_client, *_, in_process = told
    assert answers(json_client) == answers(triton_client)
    assert int(re.search(r"right: (\d+) of 20", json_client)[1]) >= 18
    ways = answers(in_process)
    assert len(ways) == 3
    assert {answers(json_client)[0][:15]} == set(ways)  # eight digits
    right, count = map(int, re.search(r"right: (\d+) of (\d+)", in_process).groups())
    assert right / count > 0.94
    assert "on CPUExecutionProvider" in in_process or "CUDAExecutionProvider" in in_process


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_asks_in_two_forms(trained, answering):
    out = run(["sh", EXAMPLE / "client.sh", trained / "digit.f32", f"http://{answering.http}"])
    replies = [json.loads(line) for line in out.splitlines()]
    assert len(replies) == 2
    (found,) = {reply["outputs"][0]["data"][0] for reply in replies}
    _, index, label = found.split(":")
    assert (EXAMPLE / "labels.txt").read_text().split()[int(index)] == label
    with_faults = subprocess.run(
        ["sh", EXAMPLE / "client.sh", trained / "digit.f32", f"http://{answering.http}", "other"],
        capture_output=True,
    )
    assert with_faults.returncode != 0


def test_clients_bring_a_token(trained, serving, tmp_path):
    pytest.importorskip("tritonclient.http")
    token = tmp_path / "token"
    token.write_text("secret")
    url = f"http://{serving(trained / 'models', '--token-file', token).http}"
    client = [sys.executable, EXAMPLE / "client.py", trained / "digits.npz", "--url", url]
    for way in ([], ["--triton"]):
        assert "of 20" in run([*client, "--token", "secret", *way])
    refused = subprocess.run(client, env=ENVIRONMENT, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "401" in refused.stderr


@pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("curl")), reason="both are used")
def test_the_way_with_a_token_and_a_certificate(trained, serving, tmp_path):
    """The commands of the README make them, a server takes them, and the clients bring them."""
    make, ask = SAFE[:2], SAFE[2:]
    assert len(ask) == 2
    for command in make:
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True)
    pair = ("--tls-cert", tmp_path / "tls.crt", "--tls-key", tmp_path / "tls.key")
    server = serving(trained / "models", "--token-file", tmp_path / "token", *pair)
    for command in ask:
        text = command.replace("demo/serving", str(trained)).replace("8443", str(server.address[1]))
        text = text.replace("examples/serving", str(EXAMPLE)).replace(
            "python ", f"{sys.executable} "
        )
        done = subprocess.run(text, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert re.search(r"right: 20 of 20|right: 1\d of 20|model_name", done.stdout)
        without = subprocess.run(
            text.replace("$(cat token)", "x"),
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert without.returncode != 0
        assert "401" in without.stderr


def test_manifests_ask_for_a_token_and_encrypt(tmp_path):
    """By default, with secrets that the README makes, and probes that speak TLS."""
    yaml = pytest.importorskip("yaml")
    made = set(re.findall(r"kubectl create secret \w+ ([\w-]+)", README))
    for path in (EXAMPLE / "k8s" / "deployment.yaml", EXAMPLE / "kserve" / "runtime.yaml"):
        document = yaml.safe_load(path.read_text())
        (server,) = containers(document)
        options = server["args"][1:]
        values = dict(itertools.pairwise(options))
        assert (values["--token-file"], values["--tls-cert"]) == (
            "/secrets/token",
            "/secrets/tls.crt",
        )
        spec = document["spec"].get("template", document)["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {m["mountPath"]: m["name"] for m in server["volumeMounts"]}
        sources = volumes[mounts["/secrets"]]["projected"]["sources"]
        assert {source["secret"]["name"] for source in sources} == made
        probes = [probe for name, probe in server.items() if name.endswith("Probe")]
        assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}
        rights = {**spec.get("securityContext", {}), **server["securityContext"]}
        assert rights["runAsNonRoot"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]


def test_probes_are_answered(answering):
    yaml = pytest.importorskip("yaml")
    asked = {
        probe["httpGet"]["path"]
        for path in MANIFESTS
        for container in containers(yaml.safe_load(path.read_text()))
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    assert asked == {"/v2/health/live", "/v2/health/ready"}
    for path in (*asked, "/metrics"):
        assert answering.ask(path)[0] == 200


def containers(document):
    """The containers of a manifest."""
    spec = document.get("spec", {})
    spec = spec.get("template", {}).get("spec", spec)
    return spec.get("containers", [])


def parsed(arguments, tmp_path):
    """The settings that `flow2onnx-serve` reads in its arguments; `tmp_path` has the models."""
    _, *options = arguments
    for name in ("token", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("x")
    options = [o.replace("/secrets/", f"{tmp_path}/") for o in options]
    context = serve.make_context("flow2onnx-serve", [str(tmp_path), *options])
    assert isinstance(context, click.Context)
    return context.params


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda p: p.name)
def test_manifests_fit_kubernetes(path):
    yaml = pytest.importorskip("yaml")
    kubernetes = pytest.importorskip("kubernetes_validate")
    document = yaml.safe_load(path.read_text())
    version = kubernetes.latest_version()
    kubernetes.validate(document, version, strict=True)
    document["spec"]["replica"] = 1
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(document, version, strict=True)


@pytest.mark.parametrize("path", KSERVE, ids=lambda p: p.name)
def test_manifests_fit_kserve(path):
    yaml = pytest.importorskip("yaml")
    schema = pytest.importorskip("jsonschema")
    kubernetes = pytest.importorskip("kubernetes_validate")
    document = yaml.safe_load(path.read_text())
    known = yaml.safe_load((Path(__file__).parent / "kserve.yaml").read_text())
    schema.Draft202012Validator.check_schema(known[document["kind"]])
    schema.validate(document, known[document["kind"]])
    for container in containers(document):
        kubernetes.validate(
            {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}},
            kubernetes.latest_version(),
            strict=True,
        )
    document["spec"]["predictors"] = {}
    with pytest.raises(schema.ValidationError):
        schema.validate(document, known[document["kind"]])


def test_manifests_agree_with_each_other(tmp_path):
    yaml = pytest.importorskip("yaml")
    found = {path.stem: yaml.safe_load(path.read_text()) for path in MANIFESTS}
    kustomization, deployment = found["kustomization"], found["deployment"]
    applied = {path.name for path in KUBERNETES} - {"upload.yaml"}
    assert set(kustomization["resources"]) == applied
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"]
    assert labels == found["service"]["spec"]["selector"]
    assert labels == found["disruption"]["spec"]["selector"]["matchLabels"]
    target = found["autoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    pod = deployment["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert {port["targetPort"] for port in found["service"]["spec"]["ports"]} == set(ports)
    options = parsed(server["args"], tmp_path)
    assert ports == {"http": options["port"], "grpc": options["grpc_port"]}
    assert options["linger"] + options["drain"] < pod["terminationGracePeriodSeconds"]
    assert options["threads"] <= int(server["resources"]["limits"]["cpu"])
    claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == found["storage"]["metadata"]["name"]
    assert server["args"][0] == server["volumeMounts"][0]["mountPath"]
    (image,) = kustomization["images"]
    assert (image["name"], f"{image['name']}:{image['newTag']}") == (server["image"], IMAGE)


def test_kserve_runs_the_runtime(tmp_path):
    yaml = pytest.importorskip("yaml")
    found = {path.stem: yaml.safe_load(path.read_text()) for path in KSERVE}
    runtime, model = found["runtime"], found["inferenceservice"]["spec"]["predictor"]["model"]
    (server,) = runtime["spec"]["containers"]
    assert server["image"] == IMAGE
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    (known,) = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"].items() <= known.items()
    options = parsed(server["args"], tmp_path)
    assert server["args"][0] == "/mnt/models"  # where KServe puts what lies at storageUri
    assert [port["containerPort"] for port in server["ports"]] == [options["port"]]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_the_kustomization_is_one():
    yaml = pytest.importorskip("yaml")
    out = run(["kubectl", "kustomize", EXAMPLE / "k8s"])
    kinds = {document["kind"]: document for document in yaml.safe_load_all(out)}
    assert len(kinds) == 5
    assert containers(kinds["Deployment"])[0]["image"] == IMAGE


@pytest.fixture
def dockerfile():
    """The instructions of the Dockerfile, as (name, text)."""
    parser = pytest.importorskip("dockerfile_parse").DockerfileParser(
        str(EXAMPLE / "Dockerfile"), cache_content=True
    )
    steps = [(s["instruction"], s["value"]) for s in parser.structure]
    return [step for step in steps if step[0] != "COMMENT"]


def of(dockerfile, name):
    return [text for instruction, text in dockerfile if instruction == name]


def test_the_image_is_built_of_what_is_there(dockerfile):
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK",
             "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {name for name, _ in dockerfile} <= known
    base = r"python:\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}"
    bases = [re.fullmatch(rf"({base})( AS build)?", text) for text in of(dockerfile, "FROM")]
    assert len({found[1] for found in bases}) == 1
    shown = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    for text in of(dockerfile, "COPY"):
        *sources, _ = text.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in shown, f"{source} is kept from the build"
    assert "*" in shown
    assert IMAGE in (EXAMPLE / "Dockerfile").read_text()


def test_the_image_runs_without_rights(dockerfile, tmp_path):
    (user,) = of(dockerfile, "USER")
    assert int(user) >= 1000
    assert f"--uid {user} " in " ".join(of(dockerfile, "RUN"))
    (entry,), (command,) = of(dockerfile, "ENTRYPOINT"), of(dockerfile, "CMD")
    assert json.loads(entry) == ["flow2onnx-serve"]
    options = parsed(json.loads(command), tmp_path)
    assert [f"{options['port']} {options['grpc_port']}"] == of(dockerfile, "EXPOSE")
    assert of(dockerfile, "VOLUME") == [json.loads(command)[0]]
    order = [name for name, _ in dockerfile]
    assert order.index("USER") < order.index("CMD")


def test_the_image_knows_whether_it_is_healthy(dockerfile, answering):
    (text,) = of(dockerfile, "HEALTHCHECK")
    program, *arguments = json.loads(text.partition(" CMD ")[2])
    assert program == "python"
    check = [sys.executable, *(a.replace("127.0.0.1:8000", answering.http) for a in arguments)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    answering.stop()
    assert subprocess.run(check, capture_output=True).returncode != 0


def test_versions_are_those_that_the_packages_take(dockerfile):
    requirements = pytest.importorskip("packaging.requirements")
    lines = (EXAMPLE / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    ours = {"flow2onnx-serve", "flow2onnx-runtime"}
    (extras,) = re.findall(r"flow2onnx-serve\[([\w,]+)\]", " ".join(of(dockerfile, "RUN")))
    for part in ("python", "server"):
        file = ROOT / "runtime" / part / "pyproject.toml"
        project = tomllib.loads(file.read_text())["project"]
        optional = project.get("optional-dependencies", {})
        asked = [
            *project["dependencies"],
            *(d for e in extras.split(",") for d in optional.get(e, [])),
        ]
        for requirement in map(requirements.Requirement, asked):
            name = requirement.name.lower().replace("_", "-")
            assert name in {*ours, *pins}, f"constraints.txt does not pin {name}"
            assert name in ours or requirement.specifier.contains(pins[name]), requirement


def test_packages_are_locked_by_hash(dockerfile):
    """Each version that the tests ran with, and nothing else; pip installs nothing without."""
    for given, locked in (("constraints", "requirements"), ("build-constraints", "build")):
        pins = (EXAMPLE / f"{given}.txt").read_text().lower().replace("_", "-").splitlines()
        text = (EXAMPLE / f"{locked}.lock").read_text()
        entries = re.findall(r"^([\w-]+==\S+) \\\n((?:    --hash=.*\n)+)", text, re.MULTILINE)
        assert {name for name, _ in entries} == {pin for pin in pins if not pin.startswith("#")}
        assert all(re.search(r"sha256:[0-9a-f]{64}", hashes) for _, hashes in entries)
        (command,) = re.findall(r"^#    (pip-compile .*)$", text, re.MULTILINE)
        assert f"--output-file {locked}.lock {given}.txt" in command
        assert command in README or f"--output-file {locked}.lock {given}.txt" in README
    installs = [i for text in of(dockerfile, "RUN") for i in text.split("&&") if "pip install" in i]
    assert len(installs) == 3
    assert all("--require-hashes" in i or "--no-index" in i for i in installs)


@pytest.mark.slow
def test_the_wheels_of_the_image(dockerfile, tmp_path):
    pytest.importorskip("setuptools", "77")
    (line,) = (text for text in of(dockerfile, "RUN") if text.startswith("pip wheel"))
    for text in of(dockerfile, "COPY")[:2]:
        *sources, target = text.split()
        for source in sources:
            place = tmp_path / target / (source if target == "./" else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("*.egg-info"))
            else:
                shutil.copy(ROOT / source, place)
    words = shlex.split(line.replace("/wheels", str(tmp_path / "wheels")))
    subprocess.run([sys.executable, "-m", *words, "--no-build-isolation"], cwd=tmp_path, check=True,
                   capture_output=True)  # fmt: skip
    assert len(list((tmp_path / "wheels").glob("flow2onnx*.whl"))) == 2


def test_the_client_needs_numpy_only():
    tree = ast.parse((EXAMPLE / "client.py").read_text())
    top = {a.name.split(".")[0] for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    assert top - set(sys.stdlib_module_names) == {"numpy"}
