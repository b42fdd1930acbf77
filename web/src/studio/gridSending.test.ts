import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { Submission } from "../api/jobs";
import { jobs } from "../jobs/jobs";
import { sendGrid, stopSending, underWay } from "./gridSending";
import { unsent } from "./outbox";

const CELLS: Submission[] = ["0", "1", "2"].map((key) => ({
  request: { prompt: "a cat" },
  idempotency_key: key,
}));
const LATER_MS = 10_000;

/** What the server has, and how much it takes before its queue is full. */
let taken: string[] = [];
let most = 0;

function server(address: URL, init: RequestInit): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
  if (address.pathname.endsWith("/cancel")) return Promise.resolve(new Response('{"id":"x"}', { headers }));
  const full = { error: { code: "queue_full", message: "the queue is full" } };
  if (taken.length === most)
    return Promise.resolve(new Response(JSON.stringify(full), { status: 429, headers }));
  const { idempotency_key: key } = JSON.parse(init.body as string) as Submission;
  taken.push(key);
  const job = { id: `job-${key}`, state: "queued", created_at: taken.length };
  return Promise.resolve(new Response(JSON.stringify(job), { status: 202, headers }));
}

beforeEach(() => {
  taken = [];
  vi.useFakeTimers();
  vi.stubGlobal("fetch", server);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  jobs.set({ all: [], next: null, known: false });
});

test("a grid for which the queue has no room is sent to its end as there is some", async () => {
  most = 1;
  const begun = vi.fn();
  const sent = sendGrid("g", CELLS, null, begun);
  await vi.advanceTimersByTimeAsync(LATER_MS);
  expect(begun).toHaveBeenCalledTimes(1);
  expect([taken, unsent.get(), underWay.get().has("g")]).toEqual([["0"], 2, true]);
  most = 3;
  await vi.advanceTimersByTimeAsync(LATER_MS);
  await sent;
  expect([taken, unsent.get(), underWay.get().has("g")]).toEqual([["0", "1", "2"], 0, false]);
});

test("what waits for room is not sent when it is taken back", async () => {
  most = 1;
  const sent = sendGrid("g", CELLS, null, () => undefined);
  await vi.advanceTimersByTimeAsync(LATER_MS);
  stopSending("g");
  most = 3;
  await vi.advanceTimersByTimeAsync(LATER_MS);
  await sent;
  expect([taken, unsent.get()]).toEqual([["0"], 0]);
});

test("a grid whose first job is refused says so", async () => {
  most = 0;
  await expect(sendGrid("g", CELLS, null, () => undefined)).rejects.toThrow("the queue is full");
  expect(underWay.get().size).toBe(0);
});
