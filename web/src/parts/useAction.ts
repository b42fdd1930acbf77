/** Something a button does that takes a while and may fail. */

import { useCallback, useState } from "react";

export interface Action {
  run: (work: () => Promise<unknown>) => void;
  busy: boolean;
  error: unknown;
  clear: () => void;
}

export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = useCallback((work: () => Promise<unknown>) => {
    setBusy(true);
    setError(null);
    work()
      .catch(setError)
      .finally(() => {
        setBusy(false);
      });
  }, []);
  const clear = useCallback(() => {
    setError(null);
  }, []);
  return { run, busy, error, clear };
}
