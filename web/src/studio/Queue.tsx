import type { Job } from "../api/jobs";
import { useStore } from "../connection/store";
import { jobs, waiting } from "../jobs/jobs";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAction } from "../parts/useAction";
import { QueueItem } from "./QueueItem";
import "./queue.css";

/** How many failed jobs are kept in sight. */
const MOST_FAILED = 5;

/** What runs, what waits in the order of its turn, and what failed of late. */
export function Queue() {
  const say = useSay();
  const { all, known } = useStore(jobs);
  const { run, error, clear } = useAction();
  const running = all.filter((job) => job.state === "running").reverse();
  const queued = waiting(all);
  const failed = all.filter((job) => job.state === "failed").slice(0, MOST_FAILED);
  const shown: Job[] = [...running, ...queued, ...failed];
  return (
    <section className="queue" aria-label={say("studio.queue")}>
      <h2>
        {say("studio.queue")}
        {queued.length + running.length > 0 && (
          <span className="count">{queued.length + running.length}</span>
        )}
      </h2>
      <Notice error={error} onClose={clear} />
      {known && shown.length === 0 && <p className="quiet small">{say("studio.queue.empty")}</p>}
      <ol>
        {shown.map((job) => {
          const at = queued.indexOf(job);
          return (
            <QueueItem
              key={job.id}
              job={job}
              run={run}
              // Before the one in front of it, or before the one after the next.
              up={at > 0 ? (queued[at - 1]?.id ?? null) : undefined}
              down={at >= 0 && at < queued.length - 1 ? (queued[at + 2]?.id ?? null) : undefined}
            />
          );
        })}
      </ol>
    </section>
  );
}
