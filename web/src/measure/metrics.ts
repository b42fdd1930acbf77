/** What can be told of a measurement as one number. */

import type { Measurement } from "../api/records";

export const METRICS = [
  "rate",
  "median",
  "p95",
  "memory",
  "host",
  "share",
  "energy",
  "ssim",
  "compile",
] as const;

export type Metric = (typeof METRICS)[number];

export type Form = "number" | "seconds" | "bytes" | "share";

export const FORMS: Record<Metric, Form> = {
  rate: "number",
  median: "seconds",
  p95: "seconds",
  memory: "bytes",
  host: "bytes",
  share: "share",
  energy: "number",
  ssim: "number",
  compile: "seconds",
};

const READ: Record<Metric, (one: Measurement) => number | null | undefined> = {
  rate: (one) => one.samples_per_s,
  median: (one) => one.series.wall?.summary.median,
  p95: (one) => one.series.wall?.summary.p95,
  memory: (one) =>
    one.memory.length > 0 ? Math.max(...one.memory.map((device) => device.reserved_bytes)) : null,
  host: (one) => one.host_peak_bytes,
  share: (one) => one.work?.share_of_ceiling,
  energy: energyPerSample,
  ssim: (one) => one.quality?.ssim,
  compile: (one) => one.preparation.compile_s,
};

export function valueOf(one: Measurement, metric: Metric): number | null {
  return READ[metric](one) ?? null;
}

function energyPerSample(one: Measurement): number | null {
  const units = one.series.wall?.summary.count;
  if (one.energy_j === null || !units || !one.samples_per_unit) return null;
  return one.energy_j / (units * one.samples_per_unit);
}

/** What a line of a plot has in common. */
export function groupOf(one: Measurement, axis: string): string {
  const settings = Object.entries(one.settings)
    .filter(([name]) => name !== axis && name !== "preset" && name !== "system")
    .map(([name, value]) => `${name} ${String(value)}`);
  return [one.model, one.preset ?? (one.system === "calotype" ? null : one.system), one.device, ...settings]
    .filter((part) => part !== null)
    .join(" · ");
}

/** Settings that take more than one number among these, by which they can be drawn. */
export function axesOf(all: readonly Measurement[]): string[] {
  const found = new Map<string, Set<number>>();
  for (const one of all) {
    for (const [name, value] of Object.entries(one.settings)) {
      if (typeof value !== "number") continue;
      found.set(name, (found.get(name) ?? new Set()).add(value));
    }
  }
  return [...found].filter(([, values]) => values.size > 1).map(([name]) => name);
}

/** The median over rounds: a point measured several times is one point. */
export function middle(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  const half = Math.floor(sorted.length / 2);
  const upper = sorted[half] ?? 0;
  return sorted.length % 2 === 1 ? upper : ((sorted[half - 1] ?? upper) + upper) / 2;
}
