/** `/calotype/system` and `/calotype/models`: the deployment, its machine and its models (docs/http-page.md). */

import { ask, call } from "./client";

/** What a model runs with where a request does not give these values. */
export interface SamplingValues {
  steps: number;
  cfg: number;
  sampler: string;
  schedule: string;
}

export interface LoadedModel {
  name: string;
  architecture: string;
  sha256: string;
  random: boolean;
  bytes: number;
  /** Not said where it is the worker's own. */
  preset?: string | null;
}

export interface Worker {
  name: string;
  state: string;
  pid: number | null;
  device: string | null;
  preset?: string | null;
  precision?: string | null;
  jobs: number;
  restarts: number;
  models: LoadedModel[];
  memory_bytes: number | null;
  free_bytes: number | null;
  loading: string | null;
  problem: string | null;
}

export interface Slice {
  name: string;
  uuid: string;
  memory_bytes: number | null;
  free_bytes: number | null;
}

export interface Device {
  index: number;
  name: string;
  uuid: string;
  memory_bytes: number | null;
  free_bytes: number | null;
  sms: number | null;
  capability: string | null;
  slices: Slice[];
}

export interface System {
  name: string;
  version: string;
  ready: boolean;
  draining: boolean;
  queued: number;
  running: number;
  started_at: number | null;
  limits: { max_pixels: number; max_count: number; max_steps: number };
  defaults: { model: string; models: string[] };
  samplers: string[];
  schedules: string[];
  presets: string[];
  /** Those whose pictures differ by more than rounding. */
  lossy_presets: string[];
  host: {
    cpu: string | null;
    cores: number | null;
    memory_bytes: number | null;
    free_bytes: number | null;
    system: string | null;
    python: string | null;
  };
  packages: Record<string, string | null>;
  devices: Device[];
  trouble: string | null;
  disks: { purpose: string; path: string; total_bytes: number | null; free_bytes: number | null }[];
  workers: Worker[];
  nodes?: { count: number; problems: { package: string; problem: string }[] };
}

/** Part of what `/v1/deployment` says. */
export interface QueueHealth {
  /** Why no jobs are accepted now. */
  refusal?: string | null;
  /** Databases that were damaged, and what became of their jobs. */
  notices?: string[];
}

export interface ModelFile {
  folder: string;
  name: string;
  bytes: number | null;
  loaded: boolean;
  in_package: boolean;
  /** Null where the model is not loaded: an inspection of the file has them. */
  sampling?: SamplingValues | null;
}

export interface ModelFiles {
  folder: string;
  models: ModelFile[];
}

/** What `calotype models inspect` says. */
export type Inspection = Record<string, unknown> & { sampling?: SamplingValues | null };

export function readSystem(): Promise<System> {
  return ask<System>("calotype/system");
}

export function readQueueHealth(): Promise<QueueHealth> {
  return ask<QueueHealth>("v1/deployment");
}

export function readModels(): Promise<ModelFiles> {
  return ask<ModelFiles>("calotype/models");
}

export function inspectModel(folder: string, name: string): Promise<Inspection> {
  const path = [folder, ...name.split("/")].map(encodeURIComponent).join("/");
  return ask<Inspection>(`calotype/models/${path}`);
}

export function loadModel(model: string): Promise<LoadedModel[]> {
  return ask<LoadedModel[]>("v1/loaded-models", { method: "POST", body: { model } });
}

export function unloadModel(model: string): Promise<LoadedModel[]> {
  return ask<LoadedModel[]>(`v1/loaded-models/${encodeURIComponent(model)}`, { method: "DELETE" });
}

export async function readMetrics(): Promise<string> {
  return (await call("metrics", { headers: { Accept: "text/plain" } })).text();
}
