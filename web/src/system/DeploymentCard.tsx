import { useState } from "react";

import { currentSession, endSession } from "../api/session";
import type { System } from "../api/system";
import { told } from "../connection/connection";
import { useLanguage, useSay } from "../language/say";
import { seconds } from "../parts/format";
import { useAsked } from "../parts/useAsked";
import { Facts } from "./Facts";

export function DeploymentCard({ system }: { system: System }) {
  const { say, language } = useLanguage();
  // The server's clock may be another; how long ago is told from when this was first seen.
  const [seen] = useState(() => Date.now() / 1000);
  const state = system.draining ? "system.draining" : system.ready ? "system.ready" : "system.not.ready";
  const count = (value: number) => value.toLocaleString(language);
  return (
    <section className="card" aria-label={say("system.deployment")}>
      <h2>{say("system.deployment")}</h2>
      <Facts
        rows={[
          [say("system.name"), system.name],
          [say("system.version"), system.version],
          [
            say("system.state"),
            <span key="state" className={system.ready ? "good" : "problem"}>
              {say(state)}
            </span>,
          ],
          [
            say("system.since"),
            seconds(system.started_at === null ? null : Math.max(0, seen - system.started_at)),
          ],
          [
            say("system.queue"),
            say("system.queue.counts", { running: system.running, queued: system.queued }),
          ],
          [
            say("system.limits"),
            say("system.limits.said", {
              pixels: count(system.limits.max_pixels),
              count: count(system.limits.max_count),
              steps: count(system.limits.max_steps),
            }),
          ],
          [say("system.nodes"), system.nodes && say("system.nodes.count", { n: system.nodes.count })],
        ]}
      />
      {system.nodes?.problems.map((one) => (
        <p key={one.package} className="problem">
          {say("system.nodes.problem", { name: one.package, problem: one.problem })}
        </p>
      ))}
      <Visitor />
    </section>
  );
}

function Visitor() {
  const say = useSay();
  const { answer } = useAsked(currentSession);
  if (answer === null) return null;
  const leave = async () => {
    await endSession();
    told("wants-key");
  };
  return (
    <>
      <Facts
        rows={[
          [say("system.client"), answer.admin ? say("system.admin", { name: answer.client }) : answer.client],
        ]}
      />
      {answer.keys && (
        <button type="button" onClick={() => void leave()}>
          {say("shell.key.forget")}
        </button>
      )}
    </>
  );
}
