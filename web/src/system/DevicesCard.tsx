import type { System } from "../api/system";
import { useSay } from "../language/say";
import { Room } from "./Room";

/** GPUs and the slices they are cut into. */
export function DevicesCard({ system }: { system: System }) {
  const say = useSay();
  return (
    <section className="card" aria-label={say("system.devices")}>
      <h2>{say("system.devices")}</h2>
      {system.devices.length === 0 && (
        <p className="quiet">{say("system.devices.none", { why: system.trouble ?? "–" })}</p>
      )}
      {system.devices.map((device) => (
        <div key={device.uuid} className="stack tight">
          <h3>
            {device.index}: {device.name}
          </h3>
          <p className="quiet small">
            {say("system.device.facts", { sms: device.sms ?? "–", capability: device.capability ?? "–" })}
          </p>
          <Room name={device.name} free={device.free_bytes} total={device.memory_bytes} />
          {device.slices.map((slice) => (
            <div key={slice.uuid} className="slice">
              <span>{slice.name}</span>
              <Room name={slice.name} free={slice.free_bytes} total={slice.memory_bytes} />
            </div>
          ))}
        </div>
      ))}
    </section>
  );
}
