import { afterEach, expect, test, vi } from "vitest";

import type { Job } from "../api/jobs";
import { told } from "../connection/connection";
import { jobs } from "../jobs/jobs";
import { send, unsent } from "./outbox";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("what could not be sent is sent under the same key when the server is back", async () => {
  const bodies: string[] = [];
  let gone = true;
  vi.stubGlobal("fetch", (_: URL, init: RequestInit) => {
    bodies.push(init.body as string);
    if (gone) return Promise.reject(new TypeError("failed"));
    return Promise.resolve(new Response('{"id":"a","state":"queued"}', { status: 202 }));
  });
  const sent = send({ request: { prompt: "a cat" }, idempotency_key: "studio/x" }, null);
  await vi.waitFor(() => {
    expect(unsent.get()).toBe(1);
  });
  gone = false;
  told("answers");
  expect((await sent).id).toBe("a");
  expect(unsent.get()).toBe(0);
  expect(bodies).toHaveLength(2);
  expect(bodies[0]).toBe(bodies[1]);
  expect(jobs.get().all.map((job: Job) => job.id)).toEqual(["a"]);
});

test("what the server refuses is not sent again", async () => {
  const asked = vi.fn(() => Promise.resolve(new Response("{}", { status: 400 })));
  vi.stubGlobal("fetch", asked);
  await expect(send({ request: { prompt: "" }, idempotency_key: "studio/y" }, null)).rejects.toThrow();
  expect(asked).toHaveBeenCalledTimes(1);
});
