/** Drawing on the page that learns digits, as a hand does. */

// Strokes in shares of the pad. A house is no digit: whatever it is called, it has to be learnt.
export const HOUSE = [
  [
    [0.2, 0.9],
    [0.2, 0.45],
    [0.5, 0.1],
    [0.8, 0.45],
    [0.8, 0.9],
    [0.2, 0.9],
  ],
  [
    [0.45, 0.9],
    [0.45, 0.65],
    [0.6, 0.65],
    [0.6, 0.9],
  ],
];
export const ONE = [
  [
    [0.4, 0.25],
    [0.52, 0.12],
    [0.52, 0.88],
  ],
];

/** Wait until the page can be used. */
export function ready(page) {
  return page.waitForFunction(() => document.body.getAttribute("aria-busy") === "false");
}

/** Draw strokes on an empty pad, and wait until they are read. */
export async function draw(page, strokes) {
  await page.keyboard.press("Escape");
  const box = await page.locator("#pad").boundingBox();
  const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
  for (const [first, ...rest] of strokes) {
    await page.mouse.move(...at(first));
    await page.mouse.down();
    for (const point of rest) await page.mouse.move(...at(point), { steps: 6 });
    await page.mouse.up();
  }
  await page.waitForFunction(() => /sure/.test(document.getElementById("sureness").textContent));
}
