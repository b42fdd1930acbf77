import { expect, test } from "vitest";

import type { Measurement } from "../api/records";
import { EVERYTHING, filtered } from "./filter";
import { linesOf } from "./lines";
import { axesOf, middle } from "./metrics";
import { ticks } from "./ticks";

function measured(batch: number, rate: number | null, changes: Partial<Measurement> = {}): Measurement {
  return {
    ...{ run: "r", id: `${batch}`, point: `batch=${batch}`, round: 1, kind: "inference", system: "calotype" },
    ...{ model: "sdxl", preset: "fast", passes: null, precision: "fp16", request: null, settings: { batch } },
    ...{ device: "H100", devices: 1, nodes: 1, commit: null, modified: null, command: "", started_at: null },
    ...{ status: "ok", message: null, series: {}, samples_per_unit: 1, samples_per_s: rate, notes: [] },
    ...{ preparation: { load_s: null, compile_s: null }, memory: [], host_peak_bytes: null, work: null },
    ...{ quality: null, energy_j: null },
    ...changes,
  };
}

test("rounds of a point are one point, at their median", () => {
  const all = [measured(4, 8), measured(1, 2), measured(4, 10), measured(4, 30), measured(8, null)];
  const failed = measured(16, 99, { status: "oom" });
  expect(linesOf([...all, failed], "batch", "rate")).toEqual([
    {
      name: "sdxl · fast · H100",
      points: [
        { x: 1, y: 2 },
        { x: 4, y: 10 },
      ],
    },
  ]);
});

test("presets are lines of their own", () => {
  const lines = linesOf([measured(1, 1), measured(1, 2, { preset: "baseline" })], "batch", "rate");
  expect(lines.map((line) => line.name)).toEqual(["sdxl · fast · H100", "sdxl · baseline · H100"]);
});

test("only what varies can be an axis", () => {
  const all = [
    measured(1, 1, { settings: { batch: 1, steps: 20 } }),
    measured(2, 1, { settings: { batch: 2, steps: 20 } }),
  ];
  expect(axesOf(all)).toEqual(["batch"]);
});

test("filters hold together", () => {
  const all = [measured(1, 1), measured(2, 1, { kind: "serve", device: "CPU" })];
  expect(filtered(all, { ...EVERYTHING, text: "cpu sdxl" })).toHaveLength(1);
  expect(filtered(all, { ...EVERYTHING, text: "cpu", kind: "inference" })).toHaveLength(0);
});

test("ticks are round and reach the largest value", () => {
  expect(ticks(10)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(ticks(0.033).at(-1)).toBeGreaterThanOrEqual(0.033);
  expect(ticks(0)).toEqual([0, 1]);
  expect(middle([3, 1, 2, 4])).toBe(2.5);
});
