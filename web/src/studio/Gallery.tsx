import { pictureAddress } from "../api/jobs";
import { useStore } from "../connection/store";
import { jobs, olderJobs } from "../jobs/jobs";
import { useSay } from "../language/say";
import { useAction } from "../parts/useAction";
import { gridsOf } from "./grid";
import { addressOfSelection, useSelection } from "./selection";
import { describe, finished, nameOf, titleOf } from "./shown";

/** Everything that was made, newest first. */
export function Gallery() {
  const say = useSay();
  const { all, next, known } = useStore(jobs);
  const selection = useSelection();
  const { run, busy } = useAction();
  const pictures = finished(all);
  const grids = gridsOf(all);
  return (
    <section className="gallery" aria-label={say("studio.gallery")}>
      <h2>{say("studio.gallery")}</h2>
      {known && pictures.length === 0 && <p className="quiet small">{say("studio.gallery.empty")}</p>}
      {grids.length > 0 && (
        <ul className="grids">
          {grids.map((grid) => {
            const names = { x: say(`studio.knob.${grid.x}`), y: say(`studio.knob.${grid.y}`) };
            return (
              <li key={grid.id}>
                <a
                  className="button"
                  href={addressOfSelection({ kind: "grid", grid: grid.id })}
                  aria-current={selection.kind === "grid" && selection.grid === grid.id}
                >
                  {say("studio.grid.title", names)}
                  <span className="quiet">
                    {grid.columns} × {grid.rows}
                  </span>
                </a>
              </li>
            );
          })}
        </ul>
      )}
      <ul className="pictures">
        {pictures.map(({ job, picture, index }) => {
          const name = nameOf(job, say("studio.workflow"));
          const chosen =
            selection.kind === "picture" && selection.job === job.id && selection.index === index;
          return (
            <li key={`${job.id}/${index}`}>
              <a
                href={addressOfSelection({ kind: "picture", job: job.id, index })}
                aria-current={chosen}
                title={titleOf(name, picture)}
              >
                <img
                  src={pictureAddress(job.id, index)}
                  loading="lazy"
                  decoding="async"
                  alt={describe(name, picture, say)}
                />
              </a>
            </li>
          );
        })}
      </ul>
      {next !== null && (
        <button
          type="button"
          disabled={busy}
          onClick={() => {
            run(olderJobs);
          }}
        >
          {say("studio.gallery.older")}
        </button>
      )}
    </section>
  );
}
