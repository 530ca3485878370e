"use strict";
// Numbers stay fresh, examples are copied, forms are sent. Text of others is only ever text.
const EVERY = 2000; // milliseconds between two looks at the numbers
const SHOWN = 20000; // characters of an answer
const TOKEN = "flow2onnx-token";
const parser = new DOMParser();

function ask(path, { method = "GET", headers = {}, body } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const given = token ? { Authorization: `Bearer ${token}`, ...headers } : headers;
  return fetch(path, { method, headers: given, body, cache: "no-store", redirect: "error" });
}

function show(main) {
  document.querySelector("main").replaceWith(main);
}

/** Puts a page of the server, or an answer that is none, in the place of this one. */
async function openPage(answer) {
  const text = await answer.text();
  const main = document.createElement("main");
  if ((answer.headers.get("content-type") ?? "").startsWith("text/html")) {
    const page = parser.parseFromString(text, "text/html");
    document.title = page.title;
    return show(document.adoptNode(page.querySelector("main")));
  }
  main.append(block(text));
  show(main);
}

function block(text) {
  const pre = document.createElement("pre");
  pre.textContent = text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${text.length} characters` : text;
  return pre;
}

async function signIn() {
  const answer = await ask(location.href, { headers: { Accept: "text/html" } });
  if (answer.status !== 401) return openPage(answer);
  sessionStorage.removeItem(TOKEN);
  document.getElementById("status").textContent = "that is not the token";
}

const isTouched = () =>
  [...document.querySelectorAll("textarea, input")].some((e) => e.value !== e.defaultValue);

/** Takes the live parts of the same page, as it is now; all of it where other things changed. */
async function refresh() {
  const status = document.getElementById("status");
  const main = document.querySelector("main");
  if (document.hidden || !main.querySelector("[data-live]")) return;
  try {
    const answer = await ask(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = parser.parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    status.textContent = "";
    if (fresh.dataset.key !== main.dataset.key && !isTouched()) {
      return show(document.adoptNode(fresh));
    }
    for (const part of main.querySelectorAll("[data-live]")) {
      const other = page.getElementById(part.id);
      if (other && other.outerHTML !== part.outerHTML) part.replaceWith(document.adoptNode(other));
    }
  } catch (error) {
    status.textContent = `the server does not answer (${error.message})`;
  }
}

/** The body and headers of a request: zeros lie behind JSON that announces binary data. */
function packed(text) {
  let zeros = 0;
  try {
    for (const input of JSON.parse(text).inputs ?? []) {
      zeros += Number(input.parameters?.binary_data_size ?? 0);
    }
  } catch {
    return { body: text, headers: {} }; // the server says what is wrong
  }
  if (!(zeros > 0 && zeros < 2 ** 30)) return { body: text, headers: {} };
  const head = new TextEncoder().encode(text);
  const headers = { "Inference-Header-Content-Length": String(head.length) };
  return { body: new Blob([head, new Uint8Array(zeros)]), headers };
}

async function send(form) {
  const values = new FormData(form);
  const path = form.dataset.path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(values.get(name) ?? ""));
  const { method } = form.dataset;
  const result = form.querySelector("output");
  result.textContent = "…";
  const begun = performance.now();
  try {
    const request = method === "GET" ? {} : packed(values.get("body") ?? "");
    const headers = { Accept: "application/json", ...request.headers };
    const answer = await ask(path, { method, headers, body: request.body });
    const length = Number(answer.headers.get("Inference-Header-Content-Length") ?? -1);
    const bytes = await answer.arrayBuffer();
    const text = new TextDecoder().decode(length < 0 ? bytes : bytes.slice(0, length));
    const taken = (performance.now() - begun).toFixed(1);
    const rest = length < 0 ? "" : `, and ${bytes.byteLength - length} bytes of data`;
    result.replaceChildren(`${answer.status} ${answer.statusText} in ${taken} ms${rest}`, block(text));
  } catch (error) {
    result.textContent = `no answer: ${error.message}`;
  }
}

async function copy(button) {
  const code = button.closest(".code").querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code); // no clipboard without TLS: Ctrl+C takes it
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  if (form.id !== "sign-in") return send(form);
  sessionStorage.setItem(TOKEN, new FormData(form).get("token"));
  return signIn();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copy(button);
});
if (document.getElementById("sign-in") && sessionStorage.getItem(TOKEN)) signIn();
setInterval(refresh, EVERY);
