/**
 * A grid's jobs on their way to the server, one after the other, so that they are made in the order they are read. A
 * queue that has no room for all of them is waited for. Knows nothing of what they ask.
 */

import type { Given, Job, Submission } from "../api/jobs";
import { ApiError } from "../api/problem";
import { store } from "../connection/store";
import { cancel } from "../jobs/jobs";
import { send, unsent } from "./outbox";

const FULL = 429;
const AGAIN_MS = 2000;

/** Grids of which some jobs are still to be sent. */
export const underWay = store<ReadonlySet<string>>(new Set());

/** What is not sent yet stays unsent. */
export function stopSending(grid: string): void {
  underWay.set(new Set([...underWay.get()].filter((other) => other !== grid)));
}

/** `begun` hears when the server has the first; that one is refused if there is no room. */
export async function sendGrid(
  grid: string,
  cells: readonly Submission[],
  given: Given | null,
  begun: () => void,
): Promise<void> {
  underWay.set(new Set([...underWay.get(), grid]));
  const wanted = () => underWay.get().has(grid);
  try {
    for (const [at, cell] of cells.entries()) {
      const job =
        at === 0 ? await send(cell, given) : await sendLater(cell, given, cells.length - at, wanted);
      if (at === 0) begun();
      if (!wanted()) {
        if (job) await cancel(job.id);
        return;
      }
    }
  } finally {
    stopSending(grid);
  }
}

async function sendLater(
  cell: Submission,
  given: Given | null,
  left: number,
  wanted: () => boolean,
): Promise<Job | null> {
  while (wanted()) {
    try {
      return await send(cell, given);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== FULL) throw error;
      await room(left);
    }
  }
  return null;
}

async function room(left: number): Promise<void> {
  unsent.set(unsent.get() + left);
  await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  unsent.set(unsent.get() - left);
}
