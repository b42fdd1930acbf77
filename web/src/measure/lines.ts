/** Measurements as the lines and bars of a plot. */

import type { Measurement } from "../api/records";
import { groupOf, middle, valueOf, type Metric } from "./metrics";

export interface PlotPoint {
  x: number;
  y: number;
}

export interface Line {
  name: string;
  points: PlotPoint[];
}

export interface Bar {
  name: string;
  value: number;
}

export function linesOf(all: readonly Measurement[], axis: string, metric: Metric): Line[] {
  const lines = new Map<string, Map<number, number[]>>();
  for (const one of all) {
    const [x, y] = [one.settings[axis], valueOf(one, metric)];
    if (one.status !== "ok" || typeof x !== "number" || y === null) continue;
    const line = lines.get(groupOf(one, axis)) ?? new Map<number, number[]>();
    line.set(x, [...(line.get(x) ?? []), y]);
    lines.set(groupOf(one, axis), line);
  }
  return [...lines].map(([name, points]) => ({
    name,
    points: [...points].map(([x, ys]) => ({ x, y: middle(ys) })).sort((one, other) => one.x - other.x),
  }));
}

export function barsOf(all: readonly Measurement[], metric: Metric): Bar[] {
  const bars = new Map<string, number[]>();
  for (const one of all) {
    const value = valueOf(one, metric);
    if (one.status !== "ok" || value === null) continue;
    const name = `${one.point} · ${one.device}`;
    bars.set(name, [...(bars.get(name) ?? []), value]);
  }
  return [...bars].map(([name, values]) => ({ name, value: middle(values) }));
}
