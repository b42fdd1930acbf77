import { expect, test, vi } from "vitest";

import type { PicturesJob } from "../api/jobs";
import { DEFAULTS, requestOf, seedOf, settingsOf, submissionOf } from "./settings";

test("what is not said stays unsaid", () => {
  const request = requestOf({ ...DEFAULTS, prompt: "a cat", strength: 0.5 }, false);
  for (const name of ["negative_prompt", "width", "height", "eta", "vae", "strength"]) {
    expect(request).not.toHaveProperty(name);
  }
  expect(Object.keys(submissionOf(DEFAULTS, false, "k"))).toEqual(["request", "idempotency_key"]);
});

test("strength goes along with a start picture", () => {
  expect(requestOf({ ...DEFAULTS, strength: 0.5 }, true).strength).toBe(0.5);
});

test("a job's settings make its picture again", () => {
  const asked = {
    ...DEFAULTS,
    ...{ prompt: "a cat", negative: "dogs", width: 64, height: 72, steps: 9, cfg: 3, eta: 0.5, vae: "v" },
    ...{ sampler: "heun", schedule: "beta", clip_skip: 2, strength: 0.4, seed: "18446744073709551615" },
    ...{ loras: [{ name: "ink", strength: 0.5, text_strength: null }], model: "emoji", locked: true },
    preset: "int8",
  };
  const job = submissionOf(asked, true, "k") as Partial<PicturesJob> as PicturesJob;
  expect(settingsOf(job, undefined)).toEqual(asked);
});

test("of several pictures the chosen one's seed is taken", () => {
  const job = {
    model: "m",
    request: { prompt: "", seed: 5, count: 3 },
  } as Partial<PicturesJob> as PicturesJob;
  const picture = { sha256: "", bytes: 1, width: 8, height: 16, seed: 7 };
  const found = settingsOf(job, picture);
  expect([found.seed, found.count, found.width, found.height, found.locked]).toEqual(["7", 1, 8, 16, true]);
});

test("seeds keep all their bits", () => {
  expect(seedOf("7")).toBe(7);
  expect(seedOf("18446744073709551615")).toBe(18446744073709551615n);
  expect(seedOf("")).toBe(0);
});

test("automatic values are left out of the request, explicit ones are sent", () => {
  const names = ["steps", "cfg", "sampler", "schedule"] as const;
  for (const name of names) expect(requestOf(DEFAULTS, false)).not.toHaveProperty(name);
  const explicit = { steps: 20, cfg: 0, sampler: "dpmpp_2m", schedule: "karras" };
  expect(requestOf({ ...DEFAULTS, ...explicit }, false)).toMatchObject(explicit);
});

test("values that a browser has stored stay explicit", async () => {
  const stored = { prompt: "a cat", steps: 20, cfg: 7.5, sampler: "dpmpp_2m", schedule: "karras" };
  localStorage.setItem("calotype.studio", JSON.stringify(stored));
  try {
    vi.resetModules();
    const opened = await import("./settings");
    expect(opened.requestOf(opened.settings.get(), false)).toMatchObject(stored);
  } finally {
    localStorage.clear();
  }
});

test("automatic values are still automatic after a reload", async () => {
  localStorage.setItem("calotype.studio", JSON.stringify({ ...DEFAULTS, cfg: 3 }));
  try {
    vi.resetModules();
    const { settings } = await import("./settings");
    const { steps, cfg, sampler, schedule } = settings.get();
    expect([steps, cfg, sampler, schedule]).toEqual([null, 3, "", ""]);
  } finally {
    localStorage.clear();
  }
});

test("a job that was never sampled leaves automatic values automatic", () => {
  const job = submissionOf(DEFAULTS, false, "k") as Partial<PicturesJob> as PicturesJob;
  const { steps, cfg, sampler, schedule } = settingsOf({ ...job, model: "m" }, undefined);
  expect([steps, cfg, sampler, schedule]).toEqual([null, null, "", ""]);
});
