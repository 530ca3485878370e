/** One draws a digit, sees what it is taken for, and says what it is. */

const at = (id) => document.getElementById(id);
const { ask } = window.digits;
const pixels = new Array(64).fill(0);
const squares = pixels.map(() => at("pad").appendChild(document.createElement("div")));

at("pad").addEventListener("pointermove", async ({ target, buttons }) => {
  const place = squares.indexOf(target);
  if (buttons === 0 || place < 0 || pixels[place] === 1) return;
  pixels[place] = 1;
  target.className = "on";
  at("answer").textContent = await ask("predict", pixels);
});

for (let digit = 0; digit < 10; digit++) {
  const button = at("labels").appendChild(document.createElement("button"));
  button.textContent = String(digit);
  button.addEventListener("click", async () => {
    await ask("collect", pixels, digit);
    pixels.fill(0);
    for (const square of squares) square.className = "";
  });
}

at("train").addEventListener("click", async () => {
  const loss = await ask("train", 10);
  at("answer").textContent = loss === undefined ? "show 16 digits first" : `loss ${loss.toFixed(3)}`;
});
