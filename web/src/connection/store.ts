/**
 * A value that changes outside of React and is read inside of it.
 *
 * Knows nothing of what it holds.
 */

import { useSyncExternalStore } from "react";

export interface Store<Value> {
  get: () => Value;
  set: (value: Value) => void;
  subscribe: (changed: () => void) => () => void;
}

export function store<Value>(first: Value): Store<Value> {
  let held = first;
  const listeners = new Set<() => void>();
  return {
    get: () => held,
    set: (value) => {
      if (Object.is(value, held)) return;
      held = value;
      for (const listener of [...listeners]) listener();
    },
    subscribe: (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
  };
}

export function useStore<Value>(from: Store<Value>): Value {
  return useSyncExternalStore(from.subscribe, from.get);
}
