/**
 * Grids over two knobs. A grid is its jobs: each one's key says which grid it belongs to and where it stands, so
 * that any browser finds the grid again from the server's list alone.
 */

import type { Job, Submission } from "../api/jobs";
import { newKey } from "./outbox";
import { submissionOf, type Settings } from "./settings";

export const KNOBS = [
  "steps",
  "cfg",
  "sampler",
  "schedule",
  "seed",
  "strength",
  "clip_skip",
  "eta",
  "model",
  "preset",
  "prompt",
] as const;

export type Knob = (typeof KNOBS)[number];

export const MOST_CELLS = 64;
const NUMBERS: readonly Knob[] = ["steps", "cfg", "strength", "clip_skip", "eta"];
const MOST_IN_RANGE = 64;
const KEY = /^grid\/(\w+)\/(\w+)\/(\w+)\/(\d+)x(\d+)\/(\d+)\.(\d+)$/;

export interface Axis {
  knob: Knob;
  values: string[];
}

export interface Place {
  grid: string;
  x: Knob;
  y: Knob;
  columns: number;
  rows: number;
  column: number;
  row: number;
}

export interface Grid {
  id: string;
  x: Knob;
  y: Knob;
  columns: number;
  rows: number;
  cells: (Job | null)[][];
  created_at: number;
}

/** `4, 6, 8`, `4..8`, `1..2:0.5`; prompts are separated by `|`. */
export function valuesOf(knob: Knob, text: string): string[] {
  const parts = text
    .split(knob === "prompt" ? "|" : /[,，]/)
    .map((part) => part.trim())
    .filter(Boolean);
  if (!NUMBERS.includes(knob) && knob !== "seed") return parts;
  return parts.flatMap(range);
}

function range(part: string): string[] {
  const found = /^(-?[\d.]+)\.\.(-?[\d.]+)(?::([\d.]+))?$/.exec(part);
  if (!found) return [part];
  const [from, to, by] = [Number(found[1]), Number(found[2]), Number(found[3] ?? 1)];
  const count = Math.floor((to - from) / by + 1e-9) + 1;
  if (!(count > 0) || count > MOST_IN_RANGE) return [part];
  return Array.from({ length: count }, (_, i) => String(Number((from + i * by).toFixed(6))));
}

/** The values that are not what the knob takes. */
export function unusable(axis: Axis): string[] {
  if (axis.knob === "seed") return axis.values.filter((value) => !/^\d{1,20}$/.test(value));
  if (!NUMBERS.includes(axis.knob)) return [];
  return axis.values.filter((value) => !Number.isFinite(Number(value)));
}

function turned(settings: Settings, knob: Knob, value: string): Settings {
  return { ...settings, [knob]: NUMBERS.includes(knob) ? Number(value) : value };
}

/** One job a cell, row by row. */
export function submissions(settings: Settings, hasImage: boolean, x: Axis, y: Axis): Submission[] {
  const grid = newKey();
  const size = `${x.values.length}x${y.values.length}`;
  return y.values.flatMap((down, row) =>
    x.values.map((across, column) => {
      const cell = turned(turned({ ...settings, count: 1 }, y.knob, down), x.knob, across);
      const key = `grid/${grid}/${x.knob}/${y.knob}/${size}/${column}.${row}`;
      return submissionOf(cell, hasImage, key);
    }),
  );
}

export function placeOf(job: Job): Place | null {
  const found = KEY.exec(job.idempotency_key ?? "");
  const [x, y] = [knobOf(found?.[2]), knobOf(found?.[3])];
  if (!found || !x || !y) return null;
  const [columns, rows, column, row] = found.slice(4).map(Number) as [number, number, number, number];
  if (column >= columns || row >= rows || columns * rows > MOST_CELLS) return null;
  return { grid: found[1] ?? "", x, y, columns, rows, column, row };
}

function knobOf(name: string | undefined): Knob | undefined {
  return KNOBS.find((knob) => knob === name);
}

/** All grids among the jobs, newest first. */
export function gridsOf(jobs: readonly Job[]): Grid[] {
  const grids = new Map<string, Grid>();
  for (const job of jobs) {
    const place = placeOf(job);
    if (!place) continue;
    const { grid: id, x, y, columns, rows } = place;
    const grid = grids.get(id) ?? {
      id,
      x,
      y,
      columns,
      rows,
      cells: emptyCells(place),
      created_at: job.created_at,
    };
    const row = grid.cells[place.row];
    if (row) row[place.column] = job;
    grids.set(id, grid);
  }
  return [...grids.values()];
}

function emptyCells({ columns, rows }: Place): null[][] {
  return Array.from({ length: rows }, () => Array.from({ length: columns }, () => null));
}

/** What a knob stands at in a job. */
export function standing(job: Job, knob: Knob): string {
  if (knob === "model") return job.model;
  if (knob === "preset") return job.preset ?? "–";
  const value = job.kind === "workflow" ? null : job.request[knob];
  return value === null || value === undefined ? "–" : String(value);
}
