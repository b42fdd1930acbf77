import { useCallback } from "react";

import { inspectModel } from "../api/system";
import { useSay } from "../language/say";
import { bytes } from "../parts/format";
import { Notice } from "../parts/Notice";
import { useAsked } from "../parts/useAsked";
import { Facts } from "./Facts";

/** What a model file turned out to be. */
export function InspectionPanel({
  folder,
  name,
  onClose,
}: {
  folder: string;
  name: string;
  onClose: () => void;
}) {
  const say = useSay();
  const ask = useCallback(() => inspectModel(folder, name), [folder, name]);
  const { answer, error } = useAsked(ask);
  return (
    <section className="inspection" aria-label={say("system.inspect.of", { name })}>
      <div className="row spread">
        <h3>{say("system.inspect.of", { name })}</h3>
        <button type="button" onClick={onClose}>
          {say("shell.close")}
        </button>
      </div>
      <Notice error={error} />
      {answer === null && error === null && <p className="quiet">{say("system.inspect.slow")}</p>}
      {answer && (
        <Facts
          rows={Object.entries(answer)
            .filter(([, value]) => value !== null)
            .map(([key, value]) => [key.replaceAll("_", " "), written(key, value)] as const)}
        />
      )}
    </section>
  );
}

function written(key: string, value: unknown): string {
  if (typeof value === "number") return key.endsWith("_bytes") ? bytes(value) : value.toLocaleString();
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}
