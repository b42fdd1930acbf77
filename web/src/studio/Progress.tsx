import type { Job } from "../api/jobs";
import { useSay } from "../language/say";

/** How far a running job is. */
export function Progress({ job }: { job: Job }) {
  const say = useSay();
  const words =
    job.steps_total > 0
      ? say("studio.progress", { done: job.steps_done, total: job.steps_total })
      : say("studio.starting");
  return (
    <div className="progress">
      <progress aria-label={words} max={Math.max(1, job.steps_total)} value={job.steps_done} />
      <span className="small">{words}</span>
    </div>
  );
}
