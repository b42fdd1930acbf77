/** Connections are few: a browser has six to one server, and all of its tabs share them. */

import { act, cleanup, render } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { Job } from "../api/jobs";
import { told } from "../connection/connection";
import { jobs } from "./jobs";
import { useJobFeed, watched } from "./useJobFeed";

const open = new Set<string>();

class Source {
  static readonly CLOSED = 2;
  readonly path: string;
  constructor(address: URL) {
    this.path = address.pathname;
    open.add(this.path);
  }
  addEventListener() {
    // Nothing is told here.
  }
  close() {
    open.delete(this.path);
  }
}

function running(id: string): Job {
  return {
    ...{ id, client: "local", state: "running", model: "emoji", request: {}, priority: 0, position: null },
    ...{ created_at: 1, started_at: 2, ended_at: null, steps_done: 0, steps_total: 9, attempts: 1 },
    ...{ pictures: [], failure: null, idempotency_key: null },
  };
}

const asked = vi.fn(() => {
  const body = { jobs: ["a", "b", "c"].map(running), next: null };
  return Promise.resolve(new Response(JSON.stringify(body)));
});

function Feed() {
  useJobFeed();
  return null;
}

async function show(hidden: boolean) {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  await act(async () => {
    document.dispatchEvent(new Event("visibilitychange"));
    await Promise.resolve();
  });
}

beforeEach(() => {
  // Other files share the page, and may have left it without a key.
  told("answers");
  vi.stubGlobal("EventSource", Source);
  vi.stubGlobal("fetch", asked);
});

afterEach(() => {
  cleanup();
  jobs.set({ all: [], next: null, known: false });
  watched.set(null);
  Reflect.deleteProperty(document, "hidden");
  open.clear();
  vi.unstubAllGlobals();
});

test("however many jobs run, a tab listens to them all and to the one that is looked at", async () => {
  watched.set("b");
  render(<Feed />);
  await vi.waitFor(() => {
    expect([...open]).toEqual(["/v1/events", "/v1/jobs/b/events"]);
  });
});

test("a tab in the background leaves all connections to others, and looks again when it is shown", async () => {
  watched.set("b");
  render(<Feed />);
  await vi.waitFor(() => {
    expect(open.size).toBe(2);
  });
  await show(true);
  expect([...open]).toEqual([]);
  asked.mockClear();
  await show(false);
  expect(open.size).toBe(2);
  expect(asked).toHaveBeenCalled();
});
