/**
 * Jobs on their way to the server. Each has a key of its own, so that one whose answer was lost can be sent again
 * and is still one job.
 */

import { submitJob, type Given, type Job, type Submission } from "../api/jobs";
import { LostError } from "../api/problem";
import { nextReturn } from "../connection/connection";
import { store } from "../connection/store";
import { heard } from "../jobs/jobs";
import { rememberSent } from "./start";

/** How many wait for the server to answer again. */
export const unsent = store(0);

export function newKey(): string {
  const drawn = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(drawn, (byte) => byte.toString(36).padStart(2, "0")).join("");
}

/** Answers when the server has the job, however often it takes. */
export async function send(submission: Submission, given: Given | null): Promise<Job> {
  for (;;) {
    try {
      const job = await submitJob(submission, given);
      if (given) rememberSent(job.id, given);
      heard(job);
      return job;
    } catch (error) {
      if (!(error instanceof LostError)) throw error;
      await serverBack();
    }
  }
}

async function serverBack(): Promise<void> {
  unsent.set(unsent.get() + 1);
  await nextReturn();
  unsent.set(unsent.get() - 1);
}
