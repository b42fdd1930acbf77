import { isUnfinished, pictureAddress, type Job } from "../api/jobs";
import { useStore } from "../connection/store";
import { cancel, previews } from "../jobs/jobs";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAction } from "../parts/useAction";
import { standing, type Grid, type Knob } from "./grid";
import { saveGrid } from "./gridPicture";
import { stopSending, underWay } from "./gridSending";
import { select } from "./selection";

/** Pictures of all pairs of two knobs, with the knobs' values at the edges. */
export function GridView({ grid }: { grid: Grid }) {
  const say = useSay();
  const { run, busy, error } = useAction();
  const jobs = grid.cells.flat().filter((job) => job !== null);
  const open = jobs.filter(isUnfinished);
  const unfinished = useStore(underWay).has(grid.id) || open.length > 0;
  const names = { x: say(`studio.knob.${grid.x}`), y: say(`studio.knob.${grid.y}`) };
  const column = (at: number) =>
    label(
      grid.cells.map((row) => row[at] ?? null),
      grid.x,
    );
  return (
    <div className="grid-view">
      <h2>{say("studio.grid.title", names)}</h2>
      <div className="scrolled">
        <table aria-label={say("studio.grid.name", names)}>
          <thead>
            <tr>
              <th scope="col">
                {names.y} \ {names.x}
              </th>
              {Array.from({ length: grid.columns }, (_, at) => (
                <th key={at} scope="col">
                  {column(at)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {grid.cells.map((row, at) => (
              <tr key={at}>
                <th scope="row">{label(row, grid.y)}</th>
                {row.map((job, place) => (
                  <td key={place}>
                    {job && <Cell job={job} name={`${label(row, grid.y)}, ${column(place)}`} />}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Notice error={error} />
      <div className="row">
        {unfinished && (
          <button
            type="button"
            disabled={busy}
            onClick={() => {
              stopSending(grid.id);
              run(() => Promise.all(open.map((job) => cancel(job.id))));
            }}
          >
            {say("studio.grid.cancel")}
          </button>
        )}
        <button
          type="button"
          disabled={busy || unfinished}
          onClick={() => {
            run(() => saveGrid(grid, names));
          }}
        >
          {say("studio.grid.save")}
        </button>
      </div>
    </div>
  );
}

function label(line: readonly (Job | null)[], knob: Knob): string {
  const known = line.find((job) => job !== null);
  return known ? standing(known, knob) : "…";
}

function Cell({ job, name }: { job: Job; name: string }) {
  const say = useSay();
  const preview = useStore(previews).get(job.id);
  const made = job.pictures.length > 0;
  const source = made ? pictureAddress(job.id, 0) : preview;
  return (
    <button
      type="button"
      className={`cell cell-${job.state}`}
      title={job.failure?.message}
      onClick={() => {
        select({ kind: "picture", job: job.id, index: 0 });
      }}
    >
      {source ? <img src={source} alt={name} className={made ? "" : "preview"} /> : <span>{name}</span>}
      {!made && <span className="small">{say(`studio.state.${job.state}`)}</span>}
    </button>
  );
}
