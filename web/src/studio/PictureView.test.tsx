import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";

import type { Job } from "../api/jobs";
import { jobs } from "../jobs/jobs";
import { Gallery } from "./Gallery";
import { PictureView } from "./PictureView";

const MADE_BY_A_WORKFLOW: Job = {
  ...{ id: "0123456789", client: "local", kind: "workflow", state: "done", model: "emoji", priority: 0 },
  ...{ request: { prompt: { "3": { class_type: "KSampler" } }, client_id: "x" }, position: null },
  ...{ created_at: 1, started_at: 1, ended_at: 2, steps_done: 1, steps_total: 1, attempts: 1 },
  ...{ pictures: [{ sha256: "ab".repeat(32), bytes: 9, width: 64, height: 64, seed: null }] },
  ...{ failure: null, idempotency_key: null },
};

afterEach(() => {
  cleanup();
  jobs.set({ all: [], next: null, known: false });
});

test("a workflow's picture has its job's name, and neither prompt nor seed", () => {
  jobs.set({ all: [MADE_BY_A_WORKFLOW], next: null, known: true });
  const { container, ...drawn } = render(
    <>
      <PictureView job={MADE_BY_A_WORKFLOW} index={0} />
      <Gallery />
    </>,
  );
  expect(drawn.getAllByAltText("Picture of Workflow 01234567")).toHaveLength(2);
  expect(drawn.getByTitle("Workflow 01234567")).toBeTruthy();
  const terms = [...container.querySelectorAll("dt")].map((term) => term.textContent);
  expect(terms.slice(0, 2)).toEqual(["Model", "Size"]);
  expect(container.innerHTML).not.toMatch(/\[object|null/);
});
