import type { Job } from "../api/jobs";
import { cancel, move, remove } from "../jobs/jobs";
import { useSay } from "../language/say";
import type { Action } from "../parts/useAction";
import { Progress } from "./Progress";
import { addressOfSelection } from "./selection";
import { nameOf } from "./shown";

interface Props {
  job: Job;
  run: Action["run"];
  /** Before which job it goes; null is the end, undefined nowhere. */
  up: string | null | undefined;
  down: string | null | undefined;
}

export function QueueItem({ job, run, up, down }: Props) {
  const say = useSay();
  const prompt = nameOf(job, say("studio.workflow"));
  const failed = job.state === "failed";
  return (
    <li className={`item item-${job.state}`}>
      <div className="item-head">
        <a
          href={addressOfSelection({ kind: "picture", job: job.id, index: 0 })}
          className="item-name"
          aria-label={say("studio.queue.show", { prompt })}
        >
          {prompt}
        </a>
        {up !== undefined && (
          <button
            type="button"
            className="plain icon"
            aria-label={say("studio.queue.up", { prompt })}
            onClick={() => {
              run(() => move(job.id, up));
            }}
          >
            ↑
          </button>
        )}
        {down !== undefined && (
          <button
            type="button"
            className="plain icon"
            aria-label={say("studio.queue.down", { prompt })}
            onClick={() => {
              run(() => move(job.id, down));
            }}
          >
            ↓
          </button>
        )}
        <button
          type="button"
          className="plain icon"
          aria-label={say(failed ? "studio.queue.dismiss" : "studio.queue.cancel", { prompt })}
          onClick={() => {
            run(() => (failed || job.state === "queued" ? remove(job) : cancel(job.id)));
          }}
        >
          ×
        </button>
      </div>
      {job.state === "running" && <Progress job={job} />}
      {job.failure && <p className="problem small">{job.failure.message}</p>}
    </li>
  );
}
