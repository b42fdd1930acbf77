/** `/v1/jobs`. The types follow `spec/job.py` and `spec/generate_request.py`. */

import { addressOf, ask, call } from "./client";
import { stringify } from "./json";

export type Seed = number | bigint;

export interface LoraUse {
  name: string;
  strength: number;
  text_strength: number | null;
}

/** What decides how a picture looks. */
export interface GenerateRequest {
  prompt: string;
  negative_prompt: string | null;
  width: number | null;
  height: number | null;
  steps: number;
  cfg: number;
  sampler: string;
  schedule: string;
  seed: Seed;
  count: number;
  eta: number | null;
  clip_skip: number;
  loras: LoraUse[];
  vae: string | null;
  strength: number | null;
  image?: { path: string; sha256: string } | null;
  mask?: { path: string; sha256: string } | null;
}

export type JobState = "queued" | "running" | "done" | "failed" | "cancelled";

export interface JobPicture {
  sha256: string;
  bytes: number;
  width: number;
  height: number;
  /** Null where a workflow made it, whose nodes have seeds of their own. */
  seed: Seed | null;
}

interface AnyJob {
  id: string;
  client: string;
  state: JobState;
  model: string;
  priority: number;
  position: number | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  steps_done: number;
  steps_total: number;
  attempts: number;
  pictures: JobPicture[];
  failure: { kind: string; message: string } | null;
  idempotency_key: string | null;
  /** Not said where the worker's own is meant. */
  preset?: string | null;
}

export interface PicturesJob extends AnyJob {
  /** Not said by servers that know no workflows. */
  kind?: "pictures";
  request: Partial<GenerateRequest>;
}

export interface WorkflowJob extends AnyJob {
  kind: "workflow";
  /** Its `prompt` is a graph. */
  request: Record<string, unknown>;
}

export type Job = PicturesJob | WorkflowJob;

export interface JobPage {
  jobs: Job[];
  next: string | null;
}

export interface Submission {
  request: Partial<GenerateRequest> & { prompt: string };
  model?: string;
  preset?: string;
  idempotency_key: string;
}

/** Pictures that go along with a request. */
export interface Given {
  image: Blob;
  mask: Blob | null;
}

export function isUnfinished(job: Job): boolean {
  return job.state === "queued" || job.state === "running";
}

export function listJobs(query: Record<string, string> = {}): Promise<JobPage> {
  return ask<JobPage>(`v1/jobs?${new URLSearchParams(query).toString()}`);
}

export function askJob(id: string): Promise<Job> {
  return ask<Job>(`v1/jobs/${encodeURIComponent(id)}`);
}

export function submitJob(submission: Submission, given: Given | null): Promise<Job> {
  if (given === null) return ask<Job>("v1/jobs", { method: "POST", body: submission });
  const form = new FormData();
  form.set("submission", stringify(submission));
  form.set("image", given.image, "image.png");
  if (given.mask) form.set("mask", given.mask, "mask.png");
  return ask<Job>("v1/jobs", { method: "POST", body: form });
}

export function cancelJob(id: string): Promise<Job> {
  return ask<Job>(`v1/jobs/${id}/cancel`, { method: "POST" });
}

export async function deleteJob(id: string): Promise<void> {
  await call(`v1/jobs/${id}`, { method: "DELETE" });
}

/** To the place before another waiting job, or to the end. */
export function moveJob(id: string, before: string | null): Promise<Job> {
  return ask<Job>(`v1/jobs/${id}/move`, { method: "POST", body: { before } });
}

export function pictureAddress(id: string, index: number): string {
  return addressOf(`v1/jobs/${id}/pictures/${index}`).href;
}
