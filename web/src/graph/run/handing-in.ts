/**
 * Runs on their way to the server. Until it has answered it may not know them, so nobody asks it how they are. Knows
 * nothing of state.
 */
import { cancelJob } from "../../api/jobs";
import { ApiError, LostError } from "../../api/problem";
import { nextReturn } from "../../connection/connection";
import type { Asked } from "./asking";

/** Whether each is still wanted. */
const onTheWay = new Map<string, boolean>();

export function isOnTheWay(id: string): boolean {
  return onTheWay.has(id);
}

/** It will not be handed in, or be stopped as soon as the server says that it has it. */
export function takeBack(id: string): void {
  onTheWay.set(id, false);
}

/** Asks until the server answers: under its own id a run is one run however often it is sent. Null if taken back. */
export async function handIn(id: string, ask: () => Promise<Asked>): Promise<Asked | null> {
  onTheWay.set(id, true);
  try {
    const asked = await answered(id, ask);
    if (onTheWay.get(id)) return asked;
    await stopped(id);
    return null;
  } finally {
    onTheWay.delete(id);
  }
}

async function answered(id: string, ask: () => Promise<Asked>): Promise<Asked | null> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof LostError)) throw error;
      await nextReturn();
      if (!onTheWay.get(id)) return null;
    }
  }
}

/** Also one that the server has although its answer was lost. */
async function stopped(id: string): Promise<void> {
  try {
    await cancelJob(id);
  } catch (error) {
    if (!(error instanceof ApiError) && !(error instanceof LostError)) throw error;
  }
}
