/** One draws a digit, sees what it is taken for, and says what it is. */

import * as ort from "onnxruntime-web";
import { indexedDBStore } from "flow2onnx-runtime";
import { PersonalDigits } from "./personal_digits.js";

const at = (id) => document.getElementById(id);
const say = (text) => (at("answer").textContent = text);
const pixels = new Float32Array(64);
const squares = Array.from(pixels, () => at("pad").appendChild(document.createElement("div")));

const digits = await PersonalDigits.open({
  bundle: "bundle",
  ort,
  shown: indexedDBStore("shown"),
  state: indexedDBStore("state"),
});
say(`learnt in ${digits.steps} steps: draw a digit`);

at("pad").addEventListener("pointermove", async (event) => {
  const place = squares.indexOf(document.elementFromPoint(event.clientX, event.clientY));
  if (event.buttons === 0 || place < 0 || pixels[place] === 1) return;
  pixels[place] = 1;
  squares[place].className = "on";
  say(String(await digits.predict(pixels)));
});

for (let digit = 0; digit < 10; digit++) {
  const button = at("labels").appendChild(document.createElement("button"));
  button.textContent = String(digit);
  button.addEventListener("click", () => {
    digits.collect(pixels, digit);
    pixels.fill(0);
    for (const square of squares) square.className = "";
  });
}

at("train").addEventListener("click", async () => {
  const loss = await digits.train(10);
  say(loss === undefined ? "show 16 digits first" : `loss ${loss.toFixed(3)}`);
});
