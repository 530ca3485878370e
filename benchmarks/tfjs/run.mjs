/** Measure rows in Chromium: node run.mjs FOLDER ROWS; prints a line of JSON for each. */

import { SOFTWARE_GPU, withPage } from "../../runtime/js/test/browser/chromium.js";

const [, , folder, rows] = process.argv;
const PAGE = "benchmarks/tfjs/page.html";
const MINUTES = 10; // that a row may take

for (const row of JSON.parse(rows)) {
  const found = await withPage(
    async (page) => {
      page.setDefaultTimeout(MINUTES * 60_000);
      await page.goto(new URL(PAGE, page.url()).href);
      return page.evaluate(
        async (row) => (await import("/benchmarks/tfjs/measure.js")).measured(row),
        { folder, ...row },
      );
    },
    { flags: row.provider === "webgpu" ? SOFTWARE_GPU : [] },
  );
  console.log(JSON.stringify({ ...row, ...found }));
}
