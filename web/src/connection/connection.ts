/**
 * Whether the server answers and lets us in. Every call through `api/client` tells it; nobody else does.
 */

import { store } from "./store";

export type Connection = "answers" | "lost" | "wants-key";

export const connection = store<Connection>("answers");

/** Counts up whenever it answers again after it did not: what was shown before may be old. */
export const returns = store(0);

export function told(next: Connection): void {
  const before = connection.get();
  connection.set(next);
  if (next === "answers" && before !== "answers") returns.set(returns.get() + 1);
}

/** When it answers again after it did not. */
export function nextReturn(): Promise<void> {
  return new Promise((resolve) => {
    const stop = returns.subscribe(() => {
      stop();
      resolve();
    });
  });
}
