import { cleanup, render } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { Job } from "../api/jobs";
import { jobs, olderJobs } from "../jobs/jobs";
import { select } from "./selection";
import { Stage } from "./Stage";

function jobOf(at: number): Job {
  return {
    ...{ id: `job-${at}`, client: "local", state: "done", model: "emoji", priority: 0, position: null },
    ...{ created_at: at, started_at: at, ended_at: at, steps_done: 1, steps_total: 1, attempts: 1 },
    ...{ request: { prompt: `picture ${at}` }, failure: null, idempotency_key: null },
    ...{ pictures: [{ sha256: "ab".repeat(32), bytes: 9, width: 64, height: 64, seed: 7 }] },
  };
}

const asked: string[] = [];

function answering(status: number, body: unknown): void {
  vi.stubGlobal("fetch", (address: URL) => {
    asked.push(address.pathname);
    const headers = { "Content-Type": "application/json" };
    return Promise.resolve(new Response(JSON.stringify(body), { status, headers }));
  });
}

beforeEach(() => {
  asked.length = 0;
  jobs.set({ all: [jobOf(99), jobOf(98)], next: "job-98", known: true });
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  select({ kind: "newest" });
  jobs.set({ all: [], next: null, known: false });
});

test("a picture older than those listed is asked for, once, and keeps its place among them", async () => {
  answering(200, jobOf(3));
  select({ kind: "picture", job: "job-3", index: 0 });
  const stage = render(<Stage />);
  expect(stage.queryByText(/not there any more/)).toBeNull();
  expect(await stage.findByAltText("Picture of “picture 3”, seed 7")).toBeTruthy();
  expect(asked).toEqual(["/v1/jobs/job-3"]);
  answering(200, { jobs: [jobOf(97), jobOf(3), jobOf(2)], next: null });
  await olderJobs();
  expect(jobs.get().all.map((job) => job.created_at)).toEqual([99, 98, 97, 3, 2]);
});

test("a picture is gone when the server says so, and not when it says anything else", async () => {
  answering(404, { error: { message: "no job job-3", code: "not_found" } });
  select({ kind: "picture", job: "job-3", index: 0 });
  const refused = render(<Stage />);
  expect(await refused.findByText(/not there any more/)).toBeTruthy();
  cleanup();
  answering(500, { error: { message: "the disk is full", code: "internal" } });
  const stage = render(<Stage />);
  expect(await stage.findByText("the disk is full")).toBeTruthy();
  expect(stage.queryByText(/not there any more/)).toBeNull();
});
