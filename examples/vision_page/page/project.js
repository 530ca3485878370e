/** A project as one file: names, pictures, and what the network has learnt of them. */

import { NDArray, fromSafetensors, toSafetensors } from "./flow2onnx-runtime/index.js";

const FORMAT = "flow2onnx-vision-project";

/** The bytes of a project's file; `state` may be null. */
export function packed({ names, size, depth, pictures, labels, state }) {
  const about = JSON.stringify({ format: FORMAT, names, size, depth });
  const bytes = (data) => new NDArray("uint8", [data.length], data);
  return toSafetensors({
    about: bytes(new TextEncoder().encode(about)),
    pictures: new NDArray("uint8", [labels.length, size, size, 3], pictures),
    labels: new NDArray("int32", [labels.length], labels),
    ...(state ? { state: bytes(state) } : {}),
  });
}

/** The project of a file; throws, with words, for any other file. `what` names it. */
export function unpacked(content, what, { size, classes }) {
  let tensors, about;
  try {
    ({ tensors } = fromSafetensors(content, what));
    about = JSON.parse(new TextDecoder().decode(tensors.about.data));
  } catch {
    throw new Error(`${what} is no project of this page`);
  }
  const { pictures, labels, state } = tensors;
  if (about?.format !== FORMAT || !pictures || !labels || !Array.isArray(about.names)) {
    throw new Error(`${what} is no project of this page`);
  }
  if (about.size !== size) {
    throw new Error(`${what} has pictures of ${about.size} pixels, and this network takes ${size}`);
  }
  if (about.names.length > classes) {
    throw new Error(`${what} has ${about.names.length} classes, and this network tells ${classes} apart`);
  }
  const isWhole =
    labels.dtype === "int32" &&
    pictures.dtype === "uint8" &&
    pictures.data.length === labels.data.length * size * size * 3 &&
    labels.data.every((label) => label >= 0 && label < about.names.length) &&
    about.names.every((name) => typeof name === "string");
  if (!isWhole) throw new Error(`${what} is damaged: its pictures and classes do not agree`);
  const depth = about.depth === "blocks" ? "blocks" : "head";
  const found = { names: about.names, depth, pictures: pictures.data, labels: labels.data };
  return { ...found, state: state?.data ?? null };
}
