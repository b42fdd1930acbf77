import type { System } from "../api/system";
import { useSay, type Say } from "../language/say";
import { Facts } from "./Facts";
import { Room } from "./Room";

export function MachineCard({ system }: { system: System }) {
  const say = useSay();
  const { host, disks } = system;
  return (
    <section className="card" aria-label={say("system.host")}>
      <h2>{say("system.host")}</h2>
      <Facts
        rows={[
          [say("system.cpu"), say("system.cores", { cpu: host.cpu ?? "–", n: host.cores ?? "–" })],
          [
            say("system.memory"),
            <Room
              key="memory"
              name={say("system.memory")}
              free={host.free_bytes}
              total={host.memory_bytes}
            />,
          ],
          ...disks.map((disk) => {
            const name = say("system.disk", { purpose: saidPurpose(say, disk.purpose) });
            return [
              name,
              <Room key={name} name={name} free={disk.free_bytes} total={disk.total_bytes} />,
            ] as const;
          }),
          [say("system.os"), host.system],
        ]}
      />
    </section>
  );
}

function saidPurpose(say: Say, purpose: string): string {
  if (purpose === "models") return say("system.disk.models");
  return purpose === "queue" ? say("system.disk.queue") : purpose;
}
