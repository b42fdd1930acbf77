import { useEffect } from "react";

import { useStore } from "../connection/store";
import { jobs } from "../jobs/jobs";
import { watched } from "../jobs/useJobFeed";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { GridView } from "./GridView";
import { JobView } from "./JobView";
import { select, useSelection } from "./selection";
import { shownOf } from "./shown";
import { useSought } from "./useSought";

/** The middle of the studio: what is being made, or what was chosen. */
export function Stage() {
  const say = useSay();
  const { all, known } = useStore(jobs);
  const selection = useSelection();
  const shown = shownOf(selection, all);
  const job = shown.kind === "job" ? shown.job.id : null;
  useEffect(() => {
    watched.set(job);
  }, [job]);
  return (
    <section className="stage" id="stage" aria-label={say("studio.stage")}>
      {shown.kind === "job" && <JobView job={shown.job} index={shown.index} />}
      {shown.kind === "grid" && <GridView grid={shown.grid} />}
      {shown.kind === "nothing" && known && (
        <div className="nothing">
          <p>{say("studio.empty")}</p>
          <p className="quiet with-keys">{say("studio.empty.keys")}</p>
        </div>
      )}
      {shown.kind === "gone" && known && (
        <NotListed job={selection.kind === "picture" ? selection.job : null} />
      )}
    </section>
  );
}

/** In the place of what is not among the jobs listed so far; null is something that cannot be asked for. */
function NotListed({ job }: { job: string | null }) {
  const say = useSay();
  const { gone, error } = useSought(job);
  if (job !== null && !gone) return <Notice error={error} />;
  return (
    <div className="nothing">
      <p>{say("studio.gone")}</p>
      <button
        type="button"
        onClick={() => {
          select({ kind: "newest" });
        }}
      >
        {say("studio.newest")}
      </button>
    </div>
  );
}
