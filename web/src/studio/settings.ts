/** What the studio's form holds, and what becomes of it. Kept in the browser, so that a reload loses nothing. */

import type { JobPicture, LoraUse, PicturesJob, Seed, Submission } from "../api/jobs";
import { store } from "../connection/store";

export interface Settings {
  prompt: string;
  negative: string;
  /** Empty: the deployment's first. */
  model: string;
  /** Empty: the worker's own. */
  preset: string;
  loras: LoraUse[];
  /** Null: the model's own, or the start picture's. */
  width: number | null;
  height: number | null;
  /** Null: automatic, which is the model's own. */
  steps: number | null;
  /** Null: automatic. */
  cfg: number | null;
  /** Empty: automatic. */
  sampler: string;
  /** Empty: automatic. */
  schedule: string;
  /** As text: it has up to 64 bits. */
  seed: string;
  locked: boolean;
  count: number;
  eta: number | null;
  clip_skip: number;
  vae: string;
  /** Null: the server's own for what is asked. */
  strength: number | null;
}

export const DEFAULTS: Settings = {
  prompt: "",
  negative: "",
  model: "",
  preset: "",
  loras: [],
  width: null,
  height: null,
  steps: null,
  cfg: null,
  sampler: "",
  schedule: "",
  seed: "0",
  locked: false,
  count: 1,
  eta: null,
  clip_skip: 0,
  vae: "",
  strength: null,
};

const REMEMBERED = "calotype.studio";
const SMALLEST_SEED_RANGE = 2 ** 32;

export const settings = store<Settings>(remembered());
settings.subscribe(() => {
  localStorage.setItem(REMEMBERED, JSON.stringify(settings.get()));
});

export function change(changes: Partial<Settings>): void {
  settings.set({ ...settings.get(), ...changes });
}

function remembered(): Settings {
  try {
    const found = JSON.parse(localStorage.getItem(REMEMBERED) ?? "{}") as Partial<Settings>;
    return { ...DEFAULTS, ...found };
  } catch {
    return DEFAULTS;
  }
}

/** Long enough to be another one each time, short enough to be told to somebody. */
export function randomSeed(): string {
  const drawn = crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  return String(drawn % SMALLEST_SEED_RANGE);
}

export function seedOf(text: string): Seed {
  const digits = /^\d{1,20}$/.exec(text.trim())?.[0] ?? "0";
  return Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits);
}

/** What is sent. What is not said stays unsaid, so that the server's own defaults hold. */
export function requestOf(from: Settings, hasImage: boolean): Submission["request"] {
  return {
    prompt: from.prompt,
    ...(from.negative === "" ? {} : { negative_prompt: from.negative }),
    ...(from.width === null ? {} : { width: from.width }),
    ...(from.height === null ? {} : { height: from.height }),
    ...(from.steps === null ? {} : { steps: from.steps }),
    ...(from.cfg === null ? {} : { cfg: from.cfg }),
    ...(from.sampler === "" ? {} : { sampler: from.sampler }),
    ...(from.schedule === "" ? {} : { schedule: from.schedule }),
    seed: seedOf(from.seed),
    count: from.count,
    ...(from.eta === null ? {} : { eta: from.eta }),
    clip_skip: from.clip_skip,
    loras: from.loras,
    ...(from.vae === "" ? {} : { vae: from.vae }),
    ...(hasImage && from.strength !== null ? { strength: from.strength } : {}),
  };
}

export function submissionOf(from: Settings, hasImage: boolean, key: string): Submission {
  return {
    request: requestOf(from, hasImage),
    ...(from.model === "" ? {} : { model: from.model }),
    ...(from.preset === "" ? {} : { preset: from.preset }),
    idempotency_key: key,
  };
}

/** What requests may leave out. Jobs that were sampled have all values that the model decided. */
const UNSAID = {
  prompt: "",
  loras: [] as LoraUse[],
  eta: null,
  strength: null,
  seed: 0,
  steps: DEFAULTS.steps,
  cfg: DEFAULTS.cfg,
  sampler: DEFAULTS.sampler,
  schedule: DEFAULTS.schedule,
  clip_skip: DEFAULTS.clip_skip,
};

/** The settings that make a finished picture again, alone. */
export function settingsOf(job: PicturesJob, picture: JobPicture | undefined): Settings {
  const request = { ...UNSAID, ...job.request };
  return {
    prompt: request.prompt,
    negative: request.negative_prompt ?? "",
    model: job.model,
    preset: job.preset ?? "",
    loras: request.loras,
    width: request.width ?? picture?.width ?? null,
    height: request.height ?? picture?.height ?? null,
    steps: request.steps,
    cfg: request.cfg,
    sampler: request.sampler,
    schedule: request.schedule,
    seed: String(picture?.seed ?? request.seed),
    locked: true,
    count: 1,
    eta: request.eta,
    clip_skip: request.clip_skip,
    vae: request.vae ?? "",
    strength: request.strength,
  };
}
