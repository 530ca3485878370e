/** The axes of the curves that the example pages draw. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { drawChart, ticks } from "../../../examples/browser/page/curve.js";

const drawn = (chart) => {
  const place = { clientWidth: 600, innerHTML: "" };
  drawChart(place, { first: 1, what: "loss", unit: "nats", ...chart });
  return place.innerHTML;
};

test("ticks are round, and reach around all values", () => {
  assert.deepEqual(ticks(0, 2.31, 4), [0, 1, 2, 3]);
  assert.deepEqual(ticks(0, 0.0007, 4), [0, 0.0002, 0.0004, 0.0006, 0.0008]);
  assert.deepEqual(ticks(-0.3, 1, 4), [-0.5, 0, 0.5, 1]);
  assert.deepEqual(ticks(1, 3, 4, 1), [1, 2, 3]);
  for (const most of [0, 1e-9, 0.3, 7, 123, 1e6]) {
    const found = ticks(0, most, 4);
    assert.equal(found[0], 0);
    assert.ok(found.length >= 2 && found.at(-1) >= most, `${most}: ${found}`);
  }
});

test("the axis begins at 0, with units, however large the values are", () => {
  const svg = drawn({ values: [40.2, 39.8, 40.1] });
  assert.match(svg, /loss \(nats\)/);
  assert.match(svg, /text-anchor="end">0</);
  assert.match(svg, />step</);
  assert.match(drawn({ values: [0.1, 0.5], unit: "%", percent: true, most: 1 }), />100</);
});

test("numbers that are not finite leave a gap, and none a word", () => {
  const svg = drawn({ values: [1, NaN, Infinity, 2, 1] });
  assert.doesNotMatch(svg, /NaN[ L]|Infinity [^a]/);
  assert.equal(svg.match(/class="each" d="([^"]*)"/)[1].match(/M/g).length, 2);
  assert.match(drawn({ values: [] }), /will be drawn here/);
});
