/** A job that an address names and that is not among those listed so far: older than these, or gone. */

import { useEffect, useState } from "react";

import { askJob } from "../api/jobs";
import { ApiError } from "../api/problem";
import { returns } from "../connection/connection";
import { useStore } from "../connection/store";
import { heard } from "../jobs/jobs";

export interface Sought {
  gone: boolean;
  /** Why nobody knows whether it is there. */
  error: unknown;
}

/** Asks once, and again when the server comes back; a job that is there is listed from then on. */
export function useSought(id: string | null): Sought {
  const [failed, setFailed] = useState<{ id: string; error: unknown } | null>(null);
  const back = useStore(returns);
  useEffect(() => {
    if (id === null) return;
    let wanted = true;
    askJob(id).then(
      (job) => {
        if (wanted) heard(job);
      },
      (error: unknown) => {
        if (wanted) setFailed({ id, error });
      },
    );
    return () => {
      wanted = false;
    };
  }, [id, back]);
  if (id === null || failed?.id !== id) return { gone: false, error: null };
  const gone = failed.error instanceof ApiError && failed.error.status === 404;
  return { gone, error: gone ? null : failed.error };
}
