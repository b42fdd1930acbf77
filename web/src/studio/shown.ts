/** Which job and picture the stage shows, and its neighbours in the gallery. */

import { isUnfinished, type Job, type JobPicture } from "../api/jobs";
import type { Say } from "../language/say";
import { gridsOf, placeOf, type Grid } from "./grid";
import { select, type Selection } from "./selection";

export type Shown =
  | { kind: "nothing" }
  | { kind: "gone" }
  | { kind: "job"; job: Job; index: number }
  | { kind: "grid"; grid: Grid };

export interface Finished {
  job: Job;
  picture: JobPicture;
  index: number;
}

/** Every finished picture, newest job first, in the order of its seeds. */
export function finished(all: readonly Job[]): Finished[] {
  return all.flatMap((job) => job.pictures.map((picture, index) => ({ job, picture, index })));
}

export function shownOf(selection: Selection, all: readonly Job[]): Shown {
  if (selection.kind === "grid") {
    const grid = gridsOf(all).find((known) => known.id === selection.grid);
    return grid ? { kind: "grid", grid } : { kind: "gone" };
  }
  if (selection.kind === "picture") {
    const job = all.find((known) => known.id === selection.job);
    return job ? { kind: "job", job, index: selection.index } : { kind: "gone" };
  }
  return newest(all);
}

function newest(all: readonly Job[]): Shown {
  const under_way = [...all].reverse();
  const job =
    under_way.find((known) => known.state === "running") ??
    under_way.find((known) => known.state === "queued") ??
    all.find((known) => known.pictures.length > 0);
  if (!job) return { kind: "nothing" };
  const place = isUnfinished(job) ? placeOf(job) : null;
  const grid = place && gridsOf(all).find((known) => known.id === place.grid);
  return grid ? { kind: "grid", grid } : { kind: "job", job, index: 0 };
}

/** The finished picture so many places further in the gallery. */
export function neighbour(all: readonly Job[], job: Job, index: number, by: 1 | -1): Finished | undefined {
  const list = finished(all);
  const at = list.findIndex((one) => one.job.id === job.id && one.index === index);
  return at < 0 ? undefined : list[at + by];
}

export function show(one: Finished): void {
  select({ kind: "picture", job: one.job.id, index: one.index });
}

/** What people recognise a picture by: its job's name, and its seed where it has one. */
export function titleOf(name: string, { seed }: JobPicture): string {
  return seed === null ? name : `${name} · ${String(seed)}`;
}

/** For who cannot see it. */
export function describe(name: string, { seed }: JobPicture, say: Say): string {
  return seed === null
    ? say("studio.picture.unseeded", { name })
    : say("studio.picture", { prompt: name, seed: String(seed) });
}

/** What people recognise a job by. */
export function nameOf(job: Job, workflow: string): string {
  if (job.kind === "workflow") return `${workflow} ${job.id.slice(0, 8)}`;
  return job.request.prompt?.trim() ?? job.id.slice(0, 8);
}
