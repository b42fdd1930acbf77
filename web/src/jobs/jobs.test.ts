import { expect, test } from "vitest";

import type { Job, JobState } from "../api/jobs";
import { merged, waiting, type Jobs } from "./jobs";

function jobOf(at: number, state: JobState = "done", position: number | null = null): Job {
  return {
    ...{ id: `job-${at}`, client: "local", state, model: "emoji", request: {}, priority: 0, position },
    ...{ created_at: at, started_at: null, ended_at: null, steps_done: 0, steps_total: 1, attempts: 1 },
    ...{ pictures: [], failure: null, idempotency_key: null },
  };
}

const NOTHING: Jobs = { all: [], next: null, known: false };
const ids = (jobs: Jobs) => jobs.all.map((job) => job.created_at);

test("a deleted job disappears with the next look", () => {
  const before = { all: [jobOf(3), jobOf(2), jobOf(1)], next: null, known: true };
  expect(ids(merged(before, [jobOf(3), jobOf(1)], null, []))).toEqual([3, 1]);
  expect(ids(merged(before, [], null, []))).toEqual([]);
});

test("older pages that were asked for stay, and so does where they end", () => {
  const before = { all: [jobOf(4), jobOf(3), jobOf(2), jobOf(1)], next: "job-1", known: true };
  const after = merged(before, [jobOf(5), jobOf(4), jobOf(3)], "job-3", []);
  expect(ids(after)).toEqual([5, 4, 3, 2, 1]);
  expect(after.next).toBe("job-1");
});

test("a page that nothing known follows begins anew", () => {
  const before = { all: [jobOf(2), jobOf(1)], next: null, known: true };
  const after = merged(before, [jobOf(99), jobOf(98)], "job-98", []);
  expect(ids(after)).toEqual([99, 98]);
  expect(after.next).toBe("job-98");
});

test("what has not ended is there however old it is, and not longer", () => {
  const old = jobOf(1, "running");
  const first = merged(NOTHING, [jobOf(9)], "job-9", [old]);
  expect(ids(first)).toEqual([9, 1]);
  expect(ids(merged(first, [jobOf(9)], "job-9", []))).toEqual([9]);
});

test("waiting jobs stand in the order of their turn", () => {
  const jobs = [jobOf(3, "queued", 0), jobOf(2, "running"), jobOf(1, "queued", 1)];
  expect(waiting(jobs).map((job) => job.id)).toEqual(["job-3", "job-1"]);
});
