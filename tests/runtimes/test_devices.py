"""The samples for devices, as far as they run without a device."""

import json
import os
import re
import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.runtimes import android
from tests.runtimes.c_driver import MARKS, ROOT
from tests.runtimes.languages import csharp, java
from tests.runtimes.languages.language import Language, run
from tests.runtimes.test_js import CHROMIUM, PACKAGE, needs_chromium

DEVICES = ROOT / "examples" / "devices"
SAMPLE = DEVICES / "android-java"
MODEL = "flow2onnx/digits/PersonalDigits.java"
NODE_MODULES = PACKAGE / "node_modules"

pytestmark = [*MARKS, pytest.mark.slow]
needs_javascript = pytest.mark.skipif(
    not (shutil.which("npm") and (NODE_MODULES / "onnxruntime-node").is_dir()),
    reason="run `npm ci --ignore-scripts` in runtime/js first",
)


def needs(language: Language) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(language.missing), reason=language.missing)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> Path:
    """The data that the samples learn from."""
    folder = tmp_path_factory.mktemp("devices")
    run(sys.executable, "-m", "examples.devices.prepare", folder, cwd=ROOT)
    return folder


@pytest.fixture
def hand(prepared, tmp_path) -> Path:
    """The same, in a folder of a sample's own."""
    return Path(shutil.copytree(prepared, tmp_path / "hand"))


def learnt(said: str, again: str) -> None:
    """Lying digits are known after a run, and a second one goes on from there."""
    found = [(int(a), float(b)) for a, b in re.findall(r"after (\d+) steps ([\d.]+) %", said)]
    (first, before), (second, after) = found
    assert before < 60
    assert after > 85
    assert second == first + 8 * 512 // 16
    (third, kept), *_ = re.findall(r"after (\d+) steps ([\d.]+) %", again)
    assert (int(third), float(kept)) == (second, after)


# ---- Android -------------------------------------------------------------------------------------


@needs(java.LANGUAGE)
def test_java_on_a_desktop(release, hand, tmp_path):
    java.make_java(release, tmp_path)
    model = SAMPLE / "app" / "src" / "model" / "java" / MODEL
    java.compile_tests(tmp_path, model, SAMPLE / "desktop" / "Main.java")
    command = java.java(tmp_path, "Main", hand)
    learnt(run(*command), run(*command))


@needs(java.LANGUAGE)
def test_the_screen_and_the_work_at_night_compile(release, tmp_path):
    """Against stand-ins for Android's classes: names and types are right as far as these are."""
    java.make_java(release, tmp_path, str(tmp_path / "flow2onnx.jar"))
    sources = sorted((SAMPLE / "app" / "src").rglob("*.java"))
    assert len(sources) == 4
    stand_ins = android.write(tmp_path / "android")
    java.compile_tests(tmp_path, *sources, *stand_ins)
    worker = next(path for path in sources if path.name == "TrainWorker.java").read_text()
    assert "setRequiresCharging(true)" in worker
    assert "setRequiresDeviceIdle(true)" in worker


@needs(java.LANGUAGE)
def test_cpp_on_a_desktop(release, hand, tmp_path):
    """The library in C++, called by Java as on the phone."""
    java.make_java(release, tmp_path)  # the main program reads the digits by it
    sample = DEVICES / "android-cpp" / "app" / "src" / "main"
    run("cmake", "-S", sample / "cpp", "-B", tmp_path / "cpp", f"-DFLOW2ONNX={release}",
        f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={tmp_path}", "-DCMAKE_BUILD_TYPE=Debug")  # fmt: skip
    run("cmake", "--build", tmp_path / "cpp")
    main = SAMPLE / "desktop" / "Main.java"
    java.compile_tests(tmp_path, sample / "java" / MODEL, main)
    command = java.java(tmp_path, "Main", hand)
    learnt(run(*command), run(*command))
    (hand / "bundle" / "manifest.json").unlink()
    with pytest.raises(AssertionError, match=r"RuntimeException: .*manifest\.json: cannot be read"):
        run(*command)


def test_manifests_are_xml():
    from xml.etree import ElementTree

    for path in (*DEVICES.rglob("*.xml"), *(java.JAVA / "src" / "android").glob("*.xml")):
        ElementTree.parse(path)
    for path in DEVICES.rglob("*.csproj"):
        ElementTree.parse(path)


# ---- .NET ----------------------------------------------------------------------------------------


@needs(csharp.LANGUAGE)
def test_csharp_on_mono(release, hand, tmp_path):
    sources = sorted((DEVICES / "csharp-console").glob("*.cs"))
    variables = csharp.compile_program(release, tmp_path, "digits.exe", *sources)
    del variables["FLOW2ONNX_ORT_LIBRARY"]
    said = [run("mono", tmp_path / "digits.exe", hand, **variables) for _ in range(2)]
    learnt(*said)


@needs(csharp.LANGUAGE)
def test_the_screen_of_maui_compiles(release, tmp_path):
    """Against stand-ins for the classes of MAUI: names and types are right as far as these are."""
    csharp.build_library(release, tmp_path)
    sources = sorted((DEVICES / "csharp-maui").rglob("*.cs"))
    assert len(sources) == 2
    model = DEVICES / "csharp-console" / "PersonalDigits.cs"
    stand_ins = ROOT / "tests" / "runtimes" / "maui.cs"
    csharp.compile_with(tmp_path, "maui.dll", "-target:library", *sources, model, stand_ins)


# ---- JavaScript ----------------------------------------------------------------------------------

WEB = """
import * as ort from "onnxruntime-node";
import { fileStore, fromSafetensors } from "flow2onnx-runtime";
import { readFile } from "node:fs/promises";
import { PersonalDigits } from "./web/personal_digits.js";
const [folder, isSecond] = process.argv.slice(1);
const [shown, state] = ["shown", "state"].map((name) => fileStore(`${folder}/${name}.safetensors`));
const digits = await PersonalDigits.open({ bundle: `${folder}/bundle`, ort, shown, state });
await learn(digits, await readFile(`${folder}/hand.safetensors`), isSecond);
"""
LEARN = """
async function learn(digits, bytes, isSecond) {
  const hand = fromSafetensors(new Uint8Array(bytes)).tensors;
  const image = (tensor, i) => tensor.data.slice(64 * i, 64 * (i + 1));
  async function right() {
    let count = 0;
    for (const [i, answer] of hand.answers.data.entries()) {
      count += (await digits.predict(image(hand.tests, i))) === answer;
    }
    console.log(`after ${digits.steps} steps ${((100 * count) / hand.answers.size).toFixed(1)} %`);
  }
  await right();
  if (isSecond) return;
  for (const [i, label] of hand.labels.data.entries()) digits.collect(image(hand.images, i), label);
  console.log("loss", await digits.train(8));
  await right();
}
"""


@pytest.fixture
def shells(tmp_path) -> Path:
    """The samples beside the packages that they import."""
    folder = tmp_path / "shells"
    modules = folder / "node_modules"
    modules.mkdir(parents=True)
    (modules / "flow2onnx-runtime").symlink_to(PACKAGE)
    for name in ("onnxruntime-node", "onnxruntime-common"):
        (modules / name).symlink_to(NODE_MODULES / name)
    for name in ("web", "electron", "react-native"):
        shutil.copytree(DEVICES / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def in_shells(shells: Path, script: str, *arguments: object) -> str:
    return run("node", "--input-type=module", "--eval", script, *map(str, arguments), cwd=shells)


@needs_javascript
def test_the_model_of_the_page_in_node(shells, hand):
    said = [in_shells(shells, WEB + LEARN, hand, *again) for again in ([], ["again"])]
    learnt(*said)


PAGE = """
import { chromium } from "playwright-core";
const [address, program] = process.argv.slice(1);
const args = ["--no-sandbox", "--disable-dev-shm-usage"];
const browser = await chromium.launch({ executablePath: program, args });
const page = await browser.newPage();
const trouble = [];
page.on("pageerror", (error) => trouble.push(String(error)));
async function told(pattern) {
  const shown = (text) => new RegExp(text).test(document.getElementById("answer").textContent);
  await page.waitForFunction(shown, pattern).catch((error) => {
    throw new Error([error.message, ...trouble].join("; "));
  });
  console.log(await page.textContent("#answer"));
}
await page.goto(address);
await told("learnt in");
const box = await page.locator("#pad").boundingBox();
async function draw() {
  await page.mouse.move(box.x + 150, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + 150, box.y + 300, { steps: 20 });
  await page.mouse.up();
}
for (let i = 0; i < 16; i++) {
  await draw();
  if (i === 0) await told("^1$");
  await page.click("#labels button:nth-child(8)");
}
await page.click("#train");
await told("^loss [0-9.]+$");
await draw();
await told("^7$");
await page.reload();
await told("learnt in");
await browser.close();
if (trouble.length) throw new Error(trouble.join());
"""


@needs_javascript
@needs_chromium
def test_the_page_in_chromium(shells, hand):
    """A line is a one, until it was called a seven; what was learnt is there on coming back."""
    site = shells / "web"
    (site / "node_modules").symlink_to(shells / "node_modules")
    (shells / "node_modules" / "onnxruntime-web").symlink_to(NODE_MODULES / "onnxruntime-web")
    shutil.copytree(hand / "bundle", site / "bundle")
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        program = os.environ.get("CHROMIUM") or CHROMIUM
        said = run("node", "--input-type=module", "--eval", PAGE, address, program, cwd=PACKAGE)
        server.shutdown()
    first, _, loss, _, second = said.splitlines()
    assert float(loss.split()[1]) < 1
    steps = [int(re.search(r"\d+", line)[0]) for line in (first, second)]
    assert steps[1] == steps[0] + 10


def test_pages_import_what_there_is():
    page = (DEVICES / "web" / "index.html").read_text()
    imports = json.loads(re.search(r'type="importmap">(.*?)</script>', page, re.S)[1])["imports"]
    packages = json.loads((DEVICES / "web" / "package.json").read_text())["dependencies"]
    assert imports.keys() == packages.keys()
    assert (PACKAGE / "src" / "index.js").is_file()
    for name in ("web", "electron"):
        script = (DEVICES / name / "page.js").read_text()
        shown = (DEVICES / name / "index.html").read_text()
        assert set(re.findall(r'at\("(\w+)"\)', script)) == set(re.findall(r'id="(\w+)"', shown))


ELECTRON = """
import { fork } from "node:child_process";
import { fromSafetensors } from "flow2onnx-runtime";
import { readFile } from "node:fs/promises";
const [folder, isSecond] = process.argv.slice(1);
const worker = fork("electron/worker.js", [`${folder}/bundle`, folder], { execArgv: [] });
const waiting = new Map();
let last = 0;
worker.on("message", ({ number, result, error }) => {
  const { resolve, reject } = waiting.get(number);
  if (error) reject(new Error(error));
  else resolve(result);
});
const ask = (method, ...given) => new Promise((resolve, reject) => {
  waiting.set(++last, { resolve, reject });
  worker.send({ number: last, method, given });
});
const told = await ask("dispose").catch((error) => error.message);
if (told !== "there is no method dispose") throw new Error(told);
const digits = {
  steps: await ask("steps"),
  predict: (pixels) => ask("predict", [...pixels]),
  collect: (pixels, digit) => ask("collect", [...pixels], digit),
  async train(times) {
    const loss = await ask("train", times);
    this.steps = await ask("steps");
    return loss;
  },
};
await learn(digits, await readFile(`${folder}/hand.safetensors`), isSecond);
worker.disconnect();
"""


@needs_javascript
def test_the_process_of_electron_as_a_child_of_node(shells, hand):
    said = [in_shells(shells, ELECTRON + LEARN, hand, *again) for again in ([], ["again"])]
    learnt(*said)
    preload = (shells / "electron" / "preload.cjs").read_text()
    assert "ask:" in preload
    for name in ("main.js", "page.js", "preload.cjs"):
        run("node", "--check", shells / "electron" / name)
    run("node", "--check", shells / "web" / "page.js")


# Packages of React Native, made of what Node has: the files as iOS has them, where renaming does
# not replace a file.
STAND_INS = {
    "onnxruntime-react-native": 'export { InferenceSession, Tensor, env } from "onnxruntime-node";',
    "react-native": 'export const Platform = { OS: "android" };',
    "react-native-quick-crypto": 'import { webcrypto } from "node:crypto";\n'
    "export const install = () => Object.defineProperty(globalThis, 'crypto',"
    " { value: webcrypto, configurable: true });",
    "@bacons/text-decoder/install": 'import { TextDecoder } from "node:util";\n'
    "globalThis.TextDecoder = TextDecoder;",
    "@dr.pogodin/react-native-fs": """
import { Buffer } from "node:buffer";
import * as fs from "node:fs";
const { FOLDER } = process.env;
export const DocumentDirectoryPath = FOLDER;
export const exists = async (path) => fs.existsSync(path);
export const unlink = async (path) => fs.unlinkSync(path);
export const readFile = async (path) => fs.readFileSync(path).toString("base64");
export const readFileAssets = (path) => readFile(`${FOLDER}/${path}`);
export const readDirAssets = async (path) =>
  fs.readdirSync(`${FOLDER}/${path}`).map((name) => ({ name, path: `${path}/${name}` }));
export const writeFile = async (path, text) => fs.writeFileSync(path, Buffer.from(text, "base64"));
export async function moveFile(from, to) {
  if (fs.existsSync(to)) throw new Error(`${to} exists`);
  if (globalThis.killed === to) throw new Error("killed");
  fs.renameSync(from, to);
}
""",
}
PHONE = """
import "onnxruntime-react-native"; // it looks at the process, which is gone below
import "@dr.pogodin/react-native-fs";
import { readFileSync } from "node:fs";
const bytes = readFileSync(`${process.env.FOLDER}/hand.safetensors`);
const { isSecond } = process.env;
for (const name of ["process", "crypto", "TextDecoder", "Buffer"]) delete globalThis[name];
for (const name of ["process", "crypto", "TextDecoder"]) {
  if (globalThis[name] !== undefined) throw new Error(`${name} is still there`);
}
await import("./react-native/globals.js");
const { fromSafetensors } = await import("flow2onnx-runtime");
const { openDigits } = await import("./react-native/digits.js");
const { phoneStore } = await import("./react-native/files.js");
const digits = await openDigits();
await learn(digits, bytes, isSecond);
const text = (found) => String.fromCharCode(...found);
const store = phoneStore("x");
if ((await store.read()) !== undefined) throw new Error("nothing was written yet");
await store.write(Uint8Array.of(97));
globalThis.killed = store.name;
const told = await store.write(Uint8Array.of(98)).catch((error) => error.message);
globalThis.killed = undefined;
if (told !== "killed" || text(await store.read()) !== "b") throw new Error("the new file is lost");
await store.write(Uint8Array.of(99));
if (text(await store.read()) !== "c") throw new Error("it is not replaced");
"""


@needs_javascript
def test_the_screen_of_react_native_is_javascript():
    """Read by the compiler of TypeScript, which knows the angle brackets too."""
    flags = ("--noEmit", "--allowJs", "--jsx", "preserve", "--module", "esnext", "--skipLibCheck",
             "--moduleResolution", "bundler", "--target", "es2022")  # fmt: skip
    sources = sorted((DEVICES / "react-native").glob("*.js"))
    run("node", NODE_MODULES / "typescript" / "bin" / "tsc", *flags, *sources, cwd=PACKAGE)


@needs_javascript
def test_react_natives_model_without_what_hermes_lacks(shells, hand):
    for name, content in STAND_INS.items():
        path = shells / "node_modules" / name
        target = path.with_suffix(".js") if path.name == "install" else path / "index.js"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        package = {"type": "module", "exports": {".": "./index.js", "./install": "./install.js"}}
        (target.parent / "package.json").write_text(json.dumps(package))
    said = []
    for again in ({}, {"isSecond": "again"}):
        said.append(run("node", "--input-type=module", "--eval", PHONE + LEARN, cwd=shells,
                        FOLDER=str(hand), **again))  # fmt: skip
        (hand / "x").unlink()
    learnt(*said)
