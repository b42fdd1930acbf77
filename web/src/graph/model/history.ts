/**
 * Undo and redo over immutable values. Changes that follow each other under the same tag (one drag, one spell of
 * typing) count as one. Knows nothing of what the values are.
 */

export interface History<T> {
  readonly past: readonly T[];
  readonly present: T;
  readonly future: readonly T[];
  readonly tag: string | null;
}

const KEPT = 200;

export function begin<T>(present: T): History<T> {
  return { past: [], present, future: [], tag: null };
}

export function record<T>(history: History<T>, next: T, tag: string | null = null): History<T> {
  if (next === history.present) return history;
  if (tag !== null && tag === history.tag) return { ...history, present: next, future: [] };
  return { past: [...history.past, history.present].slice(-KEPT), present: next, future: [], tag };
}

/** Ends the current spell: the next change is undone on its own, whatever its tag. */
export function seal<T>(history: History<T>): History<T> {
  return history.tag === null ? history : { ...history, tag: null };
}

/** Replaces the present without a step to undo, for changes that are not the user's. */
export function amend<T>(history: History<T>, present: T): History<T> {
  return present === history.present ? history : { ...history, present };
}

export function undo<T>(history: History<T>): History<T> {
  const previous = history.past.at(-1);
  if (previous === undefined) return history;
  return {
    past: history.past.slice(0, -1),
    present: previous,
    future: [history.present, ...history.future],
    tag: null,
  };
}

export function redo<T>(history: History<T>): History<T> {
  const [next, ...future] = history.future;
  if (next === undefined) return history;
  return { past: [...history.past, history.present], present: next, future, tag: null };
}
