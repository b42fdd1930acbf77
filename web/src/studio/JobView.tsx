import type { Job } from "../api/jobs";
import { useStore } from "../connection/store";
import { cancel, previews } from "../jobs/jobs";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAction } from "../parts/useAction";
import { PictureView } from "./PictureView";
import { Progress } from "./Progress";
import { nameOf } from "./shown";
import { UseSettings } from "./UseSettings";

/** A job at whatever point it is. */
export function JobView({ job, index }: { job: Job; index: number }) {
  if (job.pictures.length > 0)
    return <PictureView job={job} index={Math.min(index, job.pictures.length - 1)} />;
  return <UnderWay key={job.id} job={job} />;
}

function UnderWay({ job }: { job: Job }) {
  const say = useSay();
  const preview = useStore(previews).get(job.id);
  const { run, busy, error } = useAction();
  const ended = job.state !== "queued" && job.state !== "running";
  return (
    <div className="under-way">
      <div className="frame">
        {preview ? (
          <img className="preview" src={preview} alt={say("studio.preview")} />
        ) : (
          <div className="blank" aria-hidden="true" />
        )}
      </div>
      <p className="caption" tabIndex={0}>
        {nameOf(job, say("studio.workflow"))}
      </p>
      <State job={job} />
      <Notice error={error} />
      <div className="row">
        {!ended && (
          <button
            type="button"
            disabled={busy}
            onClick={() => {
              run(() => cancel(job.id));
            }}
          >
            {say(busy ? "studio.cancelling" : "studio.cancel")}
          </button>
        )}
        {job.kind !== "workflow" && <UseSettings job={job} />}
      </div>
    </div>
  );
}

function State({ job }: { job: Job }) {
  const say = useSay();
  if (job.failure)
    return (
      <p className="problem" role="alert">
        {say("studio.failed", { message: job.failure.message })}
      </p>
    );
  if (job.state === "cancelled") return <p className="quiet">{say("studio.cancelled")}</p>;
  if (job.state === "queued")
    return <p className="quiet">{say("studio.waiting", { n: job.position ?? 0 })}</p>;
  return <Progress job={job} />;
}
