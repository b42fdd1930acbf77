import { cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { returns } from "../connection/connection";
import { SamplingFields } from "./SamplingFields";
import { change, DEFAULTS, requestOf, settings } from "./settings";

const TURBO = { steps: 4, cfg: 1, sampler: "euler_ancestral", schedule: "trailing" };
const USUAL = { steps: 20, cfg: 7.5, sampler: "dpmpp_2m", schedule: "karras" };

const FILES = { folder: "checkpoints", bytes: 1, in_package: false };
const ANSWERS: Record<string, unknown> = {
  "/calotype/system": {
    defaults: { model: "turbo", models: ["turbo"] },
    limits: { max_steps: 200, max_count: 8 },
    samplers: ["dpmpp_2m", "euler_ancestral"],
    schedules: ["karras", "trailing"],
    ...{ workers: [], presets: [], lossy_presets: [] },
  },
  "/calotype/models": {
    models: [
      { ...FILES, name: "turbo", loaded: true, sampling: TURBO },
      { ...FILES, name: "other", loaded: false, sampling: null },
      { ...FILES, name: "broken", loaded: false, sampling: null },
    ],
  },
  "/calotype/models/checkpoints/other": { safe: true, sampling: USUAL },
  "/calotype/models/checkpoints/broken": { safe: false, sampling: null },
};

beforeEach(() => {
  vi.stubGlobal("fetch", (address: URL) => {
    const headers = { "Content-Type": "application/json" };
    return Promise.resolve(new Response(JSON.stringify(ANSWERS[address.pathname]), { headers }));
  });
  change(DEFAULTS);
  returns.set(returns.get() + 1);
});

afterEach(() => {
  cleanup();
  change(DEFAULTS);
  vi.unstubAllGlobals();
});

function placeholders(form: ReturnType<typeof render>): (string | null)[] {
  return ["Steps", "CFG"].map((label) => form.getByLabelText(label).getAttribute("placeholder"));
}

test("the form shows what the model uses for automatic values", async () => {
  const form = render(<SamplingFields />);
  expect(await form.findByText("auto (euler_ancestral)")).toBeTruthy();
  expect(form.getByText("auto (trailing)")).toBeTruthy();
  expect(placeholders(form)).toEqual(["auto (4)", "auto (1)"]);
});

test("values of a model that is not loaded are read from its file", async () => {
  change({ model: "other" });
  const form = render(<SamplingFields />);
  expect(await form.findByText("auto (dpmpp_2m)")).toBeTruthy();
  expect(placeholders(form)).toEqual(["auto (20)", "auto (7.5)"]);
});

test("a model that says nothing leaves the fields automatic", async () => {
  const form = render(<SamplingFields />);
  await form.findByText("auto (trailing)");
  change({ model: "broken" });
  expect(await form.findAllByText("Automatic")).toHaveLength(2);
  expect(placeholders(form)).toEqual(["auto", "auto"]);
});

test("an emptied field is automatic again", () => {
  change({ steps: 30, cfg: 2, sampler: "heun" });
  const form = render(<SamplingFields />);
  expect(requestOf(settings.get(), false)).toMatchObject({ steps: 30, cfg: 2, sampler: "heun" });
  for (const label of ["Steps", "CFG", "Sampler"])
    fireEvent.change(form.getByLabelText(label), { target: { value: "" } });
  for (const name of ["steps", "cfg", "sampler"])
    expect(requestOf(settings.get(), false)).not.toHaveProperty(name);
});
