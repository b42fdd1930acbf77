/** Keeps `jobs` as the server has them, for as long as the page is open. */

import { useEffect, useSyncExternalStore } from "react";

import type { Job } from "../api/jobs";
import { connection, returns } from "../connection/connection";
import { store, useStore } from "../connection/store";
import { knock } from "../connection/useHeartbeat";
import { heard, heardStep, jobs, refreshJobs } from "./jobs";
import { listen } from "./stream";

/** Several changes come together; one look is enough for all. */
const SOON_MS = 120;
/** In case an event was missed, or the server has none. */
const WHILE_WORKING_MS = 2500;
const WHILE_IDLE_MS = 20_000;
/** A browser has six connections to one server, for all of its tabs together. */
const MOST_FOLLOWED = 1;

/** The job that somebody looks at; it is followed before others. */
export const watched = store<string | null>(null);

export function useJobFeed(): void {
  const back = useStore(returns);
  const keyless = useStore(connection) === "wants-key";
  const inSight = useInSight();
  useEffect(() => {
    if (keyless || !inSight) return;
    let soon: ReturnType<typeof setTimeout> | undefined;
    const look = () => void refreshJobs().catch(ignored);
    const lookSoon = () => {
      soon ??= setTimeout(() => {
        soon = undefined;
        look();
      }, SOON_MS);
    };
    look();
    const stop = listen("v1/events", {
      on: { job: lookSoon, queue: lookSoon },
      broken: () => void knock(),
    });
    return () => {
      clearTimeout(soon);
      stop();
    };
  }, [back, keyless, inSight]);
  usePolling();
  useFollowing(inSight);
}

/** A tab in the background listens to nothing: what it held would be missing where somebody works. */
function useInSight(): boolean {
  return useSyncExternalStore(onSight, () => !document.hidden);
}

function onSight(changed: () => void): () => void {
  document.addEventListener("visibilitychange", changed);
  return () => {
    document.removeEventListener("visibilitychange", changed);
  };
}

function usePolling(): void {
  const working = useStore(jobs).all.some((job) => job.state === "queued" || job.state === "running");
  const answers = useStore(connection) === "answers";
  useEffect(() => {
    if (!answers) return;
    const look = () => {
      if (!document.hidden) refreshJobs().catch(ignored);
    };
    const timer = setInterval(look, working ? WHILE_WORKING_MS : WHILE_IDLE_MS);
    return () => {
      clearInterval(timer);
    };
  }, [working, answers]);
}

/** Steps and previews of what runs. */
function useFollowing(inSight: boolean): void {
  const running = useStore(jobs).all.filter((job) => job.state === "running");
  const looked = useStore(watched);
  const ids = running
    .map((job) => job.id)
    .reverse()
    .sort((one, other) => Number(other === looked) - Number(one === looked))
    .slice(0, MOST_FOLLOWED)
    .sort()
    .join(" ");
  useEffect(() => {
    if (!inSight) return;
    const stops = ids.split(" ").filter(Boolean).map(follow);
    return () => {
      for (const stop of stops) stop();
    };
  }, [ids, inSight]);
}

interface Step {
  id: string;
  steps_done: number;
  steps_total: number;
  preview: string | null;
}

function follow(id: string): () => void {
  return listen(`v1/jobs/${id}/events?previews=true`, {
    on: {
      state: (job) => {
        heard(job as Job);
      },
      step: (data) => {
        const step = data as Step;
        heardStep(step.id, step.steps_done, step.steps_total, step.preview);
      },
    },
  });
}

function ignored(): void {
  // The client has told the connection; what is shown stays until the server answers again.
}
