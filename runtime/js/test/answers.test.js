/** Calls that a page's worker answers, and what is thrown where several things fail. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { actThenEnd, answerBy } from "../../../examples/worker_page/page/answers.js";

const failing = (message) => async () => {
  throw new Error(message);
};

test("what failed first is thrown, and the end is done", async () => {
  const done = [];
  const end = async () => void done.push("end");
  assert.equal(await actThenEnd(async () => 3, end), 3);
  await assert.rejects(actThenEnd(failing("no memory"), end), /no memory/);
  assert.deepEqual(done, ["end", "end"]);
  await assert.rejects(actThenEnd(failing("no memory"), failing("no state")), /no memory/);
  await assert.rejects(actThenEnd(async () => 3, failing("no state")), /no state/);
});

test("a call that throws anything is answered with an error", async (t) => {
  const said = [];
  globalThis.self = { postMessage: (message) => said.push(message) };
  t.after(() => delete globalThis.self);
  const number = async () => {
    throw 1184; // as WebAssembly does for an exception of C++
  };
  answerBy({ number, error: failing("no memory") });
  for (const name of ["number", "error"]) await self.onmessage({ data: { id: 1, name } });
  assert.deepEqual(said, [
    { id: 1, error: "1184" },
    { id: 1, error: "no memory" },
  ]);
});
