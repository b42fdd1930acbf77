import { readSystem } from "../api/system";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAsked } from "../parts/useAsked";
import { Queue } from "../studio/Queue";
import { DeploymentCard } from "./DeploymentCard";
import { DevicesCard } from "./DevicesCard";
import { Facts } from "./Facts";
import { MachineCard } from "./MachineCard";
import { MetricsCard } from "./MetricsCard";
import { ModelsCard } from "./ModelsCard";
import { WorkersCard } from "./WorkersCard";
import "./system.css";

const EVERY_MS = 3000;

/** The deployment and what it runs on. */
export function SystemTab() {
  const say = useSay();
  const { answer, error } = useAsked(readSystem, EVERY_MS);
  return (
    <div className="room system">
      <h1>{say("system.title")}</h1>
      <Notice error={error} />
      {answer === null && error === null && <p className="quiet">{say("shell.loading")}</p>}
      {answer && (
        <div className="cards">
          <DeploymentCard system={answer} />
          <MachineCard system={answer} />
          <section className="card" aria-label={say("system.packages")}>
            <h2>{say("system.packages")}</h2>
            <Facts rows={[["Python", answer.host.python], ...Object.entries(answer.packages)]} />
          </section>
          <WorkersCard system={answer} />
          <DevicesCard system={answer} />
          <div className="card double">
            <Queue />
          </div>
          <ModelsCard />
          <MetricsCard />
        </div>
      )}
    </div>
  );
}
