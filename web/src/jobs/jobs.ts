/**
 * The server's jobs as the page knows them. The server is right: nothing is kept here that a reload would miss.
 */

import { cancelJob, deleteJob, isUnfinished, listJobs, moveJob, type Job } from "../api/jobs";
import { store } from "../connection/store";

export interface Jobs {
  /** Newest first. */
  all: readonly Job[];
  /** For asking for older ones; null when there are none. */
  next: string | null;
  /** Whether the server has been heard at all. */
  known: boolean;
}

const PAGE = "60";
const MOST_WAITING = "200";

export const jobs = store<Jobs>({ all: [], next: null, known: false });

/** What is there so far of running jobs, as data URLs. */
export const previews = store<ReadonlyMap<string, string>>(new Map());

/** Ask for the newest jobs, and for whatever has not ended however old it is. */
export async function refreshJobs(): Promise<void> {
  const page = await listJobs({ limit: PAGE });
  let unfinished: Job[] = [];
  if (page.next !== null) {
    const found = await Promise.all(
      ["queued", "running"].map((state) => listJobs({ state, limit: MOST_WAITING })),
    );
    unfinished = found.flatMap((part) => part.jobs);
  }
  jobs.set(merged(jobs.get(), page.jobs, page.next, unfinished));
  forgetPreviews();
}

/** What was known, with the newest page in its place. What lies in the page's span and is not in it is gone. */
export function merged(
  known: Jobs,
  page: readonly Job[],
  next: string | null,
  unfinished: readonly Job[],
): Jobs {
  const last = page.at(-1);
  const at = last ? known.all.findIndex((job) => job.id === last.id) : -1;
  const goes_on = next !== null && at >= 0;
  const older = goes_on ? known.all.slice(at + 1) : [];
  const listed = new Map([...page, ...older].map((job) => [job.id, job]));
  for (const job of unfinished) listed.set(job.id, job);
  const all = [...listed.values()].filter(
    // An older one that is listed as unfinished, and is not among these any more, has ended since.
    (job) => !isUnfinished(job) || page.includes(job) || unfinished.includes(job),
  );
  return { all: newestFirst(all), next: goes_on && older.length > 0 ? known.next : next, known: true };
}

function newestFirst(all: readonly Job[]): Job[] {
  return [...all].sort((one, other) => other.created_at - one.created_at);
}

export async function olderJobs(): Promise<void> {
  const { all, next } = jobs.get();
  if (next === null) return;
  const page = await listJobs({ limit: PAGE, before: next });
  const fresh = page.jobs.filter((job) => !all.some((known) => known.id === job.id));
  jobs.set({ all: newestFirst([...jobs.get().all, ...fresh]), next: page.next, known: true });
}

/** One job as the server has just told it. */
export function heard(job: Job): void {
  const { all, next } = jobs.get();
  const known = all.some((other) => other.id === job.id);
  const changed = known
    ? all.map((other) => (other.id === job.id ? job : other))
    : newestFirst([job, ...all]);
  jobs.set({ all: changed, next, known: true });
  if (!isUnfinished(job)) forgetPreviews();
}

export function heardStep(id: string, done: number, total: number, preview: string | null): void {
  const job = jobs.get().all.find((other) => other.id === id);
  if (job && isUnfinished(job)) heard({ ...job, steps_done: done, steps_total: total });
  if (preview !== null) previews.set(new Map(previews.get()).set(id, preview));
}

function forgetPreviews(): void {
  const kept = [...previews.get()].filter(([id]) =>
    jobs.get().all.some((job) => job.id === id && isUnfinished(job)),
  );
  if (kept.length !== previews.get().size) previews.set(new Map(kept));
}

export async function cancel(id: string): Promise<void> {
  heard(await cancelJob(id));
}

/** Forget a job; one that has not ended is stopped first. */
export async function remove(job: Job): Promise<void> {
  if (job.state === "queued") await cancelJob(job.id);
  await deleteJob(job.id);
  const { all, ...rest } = jobs.get();
  jobs.set({ ...rest, all: all.filter((other) => other.id !== job.id) });
}

export async function move(id: string, before: string | null): Promise<void> {
  await moveJob(id, before);
  await refreshJobs();
}

/** Waiting jobs, whose turn is next first. */
export function waiting(all: readonly Job[]): Job[] {
  return all
    .filter((job) => job.state === "queued")
    .sort((one, other) => (one.position ?? 0) - (other.position ?? 0) || one.created_at - other.created_at);
}
