import { cleanup, fireEvent, render, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { returns } from "../connection/connection";
import { QueueBanner } from "./QueueBanner";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function deployment(health: object) {
  const headers = { "content-type": "application/json" };
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(health), { headers })));
}

const DAMAGED = "the queue database was damaged and is replaced: 41 jobs copied, 7 not readable";
const FULL = "the queue's disk refuses writes (No space left on device): no jobs are accepted";

test("a damaged database and a full disk are said in every room, and the disk only as long as it is full", async () => {
  deployment({ ready: false, refusal: FULL, notices: [DAMAGED] });
  const drawn = render(<QueueBanner />);
  expect(await drawn.findByText(`No new jobs: ${FULL}`)).toBeDefined();
  expect(drawn.getByText(`Some jobs may be missing: ${DAMAGED}`)).toBeDefined();
  deployment({ ready: true, refusal: null, notices: [DAMAGED] });
  returns.set(returns.get() + 1);
  await waitFor(() => {
    expect(drawn.queryByText(/No new jobs/)).toBeNull();
  });
  fireEvent.click(drawn.getByRole("button", { name: "Close" }));
  expect(drawn.queryByText(/Some jobs may be missing/)).toBeNull();
});

test("nothing is said where all is well", async () => {
  deployment({ ready: true, refusal: null, notices: [] });
  const drawn = render(<QueueBanner />);
  await waitFor(() => {
    expect(drawn.getByRole("status").textContent).toBe("");
  });
});
