import type { LoadedModel, System } from "../api/system";
import { useSay } from "../language/say";
import { Scrolled } from "../parts/Scrolled";
import { bytes } from "../parts/format";

const STATES = {
  starting: "system.worker.starting",
  ready: "system.ready",
  leaving: "system.worker.leaving",
  restarting: "system.worker.restarting",
  "given up": "system.worker.given.up",
} as const;

/** The processes that own devices, and what they hold. */
export function WorkersCard({ system }: { system: System }) {
  const say = useSay();
  const heads = [
    "worker",
    "state",
    "device",
    "preset",
    "precision",
    "jobs",
    "restarts",
    "loaded",
    "free",
  ] as const;
  return (
    <section className="card wide" aria-label={say("system.workers")}>
      <h2>{say("system.workers")}</h2>
      <Scrolled label={say("system.workers")}>
        <table className="workers">
          <thead>
            <tr>
              {heads.map((head) => (
                <th key={head} scope="col">
                  {say(`system.${head}`)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {system.workers.map((worker) => (
              <tr key={worker.name}>
                <th scope="row">{worker.name}</th>
                <td>
                  {worker.state in STATES ? say(STATES[worker.state as keyof typeof STATES]) : worker.state}
                  {worker.loading && <div className="quiet small">{worker.loading}</div>}
                  {worker.problem && <div className="problem small">{worker.problem}</div>}
                </td>
                <td>{worker.device ?? "–"}</td>
                <td>{worker.preset ?? "–"}</td>
                <td>{worker.precision ?? "–"}</td>
                <td>{worker.jobs}</td>
                <td>{worker.restarts}</td>
                <td>{worker.models.map((model) => `${model.name} (${about(model)})`).join(", ") || "–"}</td>
                <td>{bytes(worker.free_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolled>
    </section>
  );
}

function about({ preset, bytes: size }: LoadedModel): string {
  return preset ? `${preset}, ${bytes(size)}` : bytes(size);
}
