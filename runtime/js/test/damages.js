/** Files with any part of them changed or cut off. */

import { NO_DIGEST, sign } from "../src/digest.js";

/** Numbers from 0 to 1, the same for the same seed. */
export function generator(seed) {
  let state = seed;
  return () => (state = (state * 16807 + 1) % 2147483647) / 2147483647;
}

/** Contents with one bit changed in each region, or the end missing, or something appended. */
export function* damages(content, flips, cuts) {
  const random = generator(content.length);
  const whole = (below) => Math.floor(random() * below);
  for (let i = 0; i < flips; i++) {
    const start = Math.floor((content.length * i) / flips);
    const end = Math.floor((content.length * (i + 1)) / flips);
    const place = start + whole(Math.max(end - start, 1));
    const damaged = content.slice();
    damaged[place] ^= 1 << whole(8);
    yield { what: `byte ${place}`, content: damaged };
  }
  for (let i = 0; i < cuts; i++) {
    const size = Math.floor(((content.length - 1) * i) / (cuts - 1));
    yield { what: `cut at ${size}`, content: content.slice(0, size) };
  }
  const longer = new Uint8Array(content.length + 1);
  longer.set(content);
  yield { what: "appended", content: longer };
}

/** A manifest of these fields with the digest that they deserve. */
export async function resigned(value) {
  const fields = { ...value, digest: NO_DIGEST }; // where it was: the first field
  const content = new TextEncoder().encode(`${JSON.stringify(fields, null, 1)}\n`);
  await sign(content, '{\n "digest": "'.length);
  return content;
}
