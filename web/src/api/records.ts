/** `/calotype/records` and `/calotype/reports`. The types follow `spec/records/measurement.py`. */

import { addressOf, ask } from "./client";

export type Setting = string | number | boolean | null;

export interface Summary {
  count: number;
  mean: number;
  stdev: number;
  min: number;
  p5: number;
  median: number;
  p95: number;
  p99: number;
  max: number;
}

export interface Series {
  unit: string;
  summary: Summary;
}

export interface Measurement {
  run: string;
  id: string;
  point: string;
  round: number;
  kind: "inference" | "train" | "serve" | "ceiling";
  system: string;
  model: string;
  preset: string | null;
  passes: string[] | null;
  precision: string | null;
  request: Record<string, unknown> | null;
  settings: Record<string, Setting>;
  device: string;
  devices: number;
  nodes: number;
  commit: string | null;
  modified: boolean | null;
  command: string;
  started_at: string | null;
  status: "ok" | "oom" | "error";
  message: string | null;
  series: Record<string, Series>;
  samples_per_unit: number | null;
  samples_per_s: number | null;
  preparation: { load_s: number | null; compile_s: number | null };
  memory: {
    allocated_bytes: number;
    reserved_bytes: number;
    device_bytes: number | null;
    total_bytes: number;
  }[];
  host_peak_bytes: number | null;
  work: { tflop_per_sample: number; tflops: number; share_of_ceiling: number | null } | null;
  quality: { reference: string; psnr_db: number | null; ssim: number } | null;
  energy_j: number | null;
  notes: string[];
}

export interface Records {
  places: string[];
  runs: { run: string; file: string; measurements: number }[];
  measurements: Measurement[];
  left_out: number;
  faults: string[];
}

export interface Report {
  name: string;
  at: number;
}

export function readRecords(): Promise<Records> {
  return ask<Records>("calotype/records");
}

export async function readReports(): Promise<Report[]> {
  return (await ask<{ reports: Report[] }>("calotype/reports")).reports;
}

export function reportAddress(name: string): string {
  return addressOf(`calotype/reports/${name.split("/").map(encodeURIComponent).join("/")}`).href;
}
