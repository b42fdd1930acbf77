import { expect, test } from "vitest";

import type { Job } from "../api/jobs";
import { gridsOf, placeOf, standing, submissions, unusable, valuesOf } from "./grid";
import { DEFAULTS } from "./settings";

function jobOf(key: string, request: Job["request"] = {}): Job {
  return {
    ...{ id: key, client: "local", state: "done", model: "emoji", request, priority: 0, position: null },
    ...{ created_at: 1, started_at: 1, ended_at: 2, steps_done: 1, steps_total: 1, attempts: 1 },
    ...{ pictures: [], failure: null, idempotency_key: key },
  };
}

test("values are written as lists and as ranges", () => {
  expect(valuesOf("cfg", "4, 6 ,8")).toEqual(["4", "6", "8"]);
  expect(valuesOf("steps", "2..5")).toEqual(["2", "3", "4", "5"]);
  expect(valuesOf("cfg", "1..2:0.25, 7")).toEqual(["1", "1.25", "1.5", "1.75", "2", "7"]);
  expect(valuesOf("strength", "0.1..0.3:0.1")).toEqual(["0.1", "0.2", "0.3"]);
  expect(valuesOf("prompt", "a cat, small | a dog")).toEqual(["a cat, small", "a dog"]);
  expect(valuesOf("sampler", "euler，heun")).toEqual(["euler", "heun"]);
});

test("what is no value is named", () => {
  expect(unusable({ knob: "cfg", values: ["4", "much", "5..1"] })).toEqual(["much", "5..1"]);
  expect(unusable({ knob: "seed", values: ["7", "-1", "18446744073709551615"] })).toEqual(["-1"]);
  expect(unusable({ knob: "sampler", values: ["anything"] })).toEqual([]);
});

test("a grid is found again from its jobs' keys alone", () => {
  const x = { knob: "cfg", values: ["2", "6"] } as const;
  const y = { knob: "seed", values: ["1", "18446744073709551615"] } as const;
  const sent = submissions(
    { ...DEFAULTS, count: 4 },
    false,
    { ...x, values: [...x.values] },
    { ...y, values: [...y.values] },
  );
  expect(sent.map(({ request }) => [request.cfg, request.seed, request.count])).toEqual([
    [2, 1, 1],
    [6, 1, 1],
    [2, 18446744073709551615n, 1],
    [6, 18446744073709551615n, 1],
  ]);
  const jobs = sent.map((one) => jobOf(one.idempotency_key, one.request));
  // The newest first, as the server lists them; one has been deleted since.
  const [grid, ...others] = gridsOf([...jobs].reverse().slice(1));
  expect(others).toEqual([]);
  expect(grid?.cells.map((row) => row.map((job) => job && standing(job, "cfg")))).toEqual([
    ["2", "6"],
    ["2", null],
  ]);
});

test("presets are a knob, and hold for every cell of other knobs", () => {
  const steps = { knob: "steps", values: ["2"] } as const;
  const y = { ...steps, values: [...steps.values] };
  const over = submissions(DEFAULTS, false, { knob: "preset", values: ["fast", "int8"] }, y);
  expect(over.map(({ preset }) => preset)).toEqual(["fast", "int8"]);
  const jobs = over.map((one) => ({
    ...jobOf(one.idempotency_key, one.request),
    preset: one.preset ?? null,
  }));
  expect(jobs.map((job) => standing(job, "preset"))).toEqual(["fast", "int8"]);
  const kept = submissions({ ...DEFAULTS, preset: "fp8" }, false, { knob: "cfg", values: ["1", "2"] }, y);
  expect(kept.map(({ preset }) => preset)).toEqual(["fp8", "fp8"]);
});

test("the knobs of a grid have real values where the form is automatic", () => {
  const x = { knob: "cfg", values: ["1", "2"] } as const;
  const y = { knob: "sampler", values: ["euler"] } as const;
  const cells = submissions(
    DEFAULTS,
    false,
    { ...x, values: [...x.values] },
    { ...y, values: [...y.values] },
  );
  expect(cells.map(({ request }) => [request.cfg, request.sampler, request.steps])).toEqual([
    [1, "euler", undefined],
    [2, "euler", undefined],
  ]);
  // Before a worker has taken them, too.
  const jobs = cells.map((cell) => jobOf(cell.idempotency_key, cell.request));
  expect(jobs.map((job) => [standing(job, "cfg"), standing(job, "sampler")])).toEqual([
    ["1", "euler"],
    ["2", "euler"],
  ]);
});

test("other keys belong to no grid", () => {
  expect(placeOf(jobOf("studio/abc"))).toBeNull();
  expect(placeOf(jobOf("grid/abc/cfg/steps/2x2/2.0"))).toBeNull();
  expect(placeOf(jobOf("grid/abc/cfg/nothing/2x2/0.0"))).toBeNull();
  expect(placeOf(jobOf("grid/abc/cfg/steps/900x900/0.0"))).toBeNull();
});
