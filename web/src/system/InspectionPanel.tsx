import { useCallback } from "react";

import { inspectModel } from "../api/system";
import { useSay, type Say } from "../language/say";
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
            .map(([key, value]) => [nameOf(say, key), written(say, key, value)] as const)
            .filter(([, value]) => value !== "")}
        />
      )}
    </section>
  );
}

const NAMED = {
  base: "system.fact.base",
  dialect: "system.fact.dialect",
  dtypes: "system.fact.dtypes",
  format: "system.fact.format",
  kind: "system.fact.kind",
  metadata: "system.fact.metadata",
  num_parameters: "system.fact.num_parameters",
  num_tensors: "system.fact.num_tensors",
  path: "system.fact.path",
  prediction_type: "system.fact.prediction_type",
  safe: "system.fact.safe",
  sampling: "system.fact.sampling",
  size_bytes: "system.fact.size_bytes",
  why: "system.fact.why",
} as const;

/** What there is no word for has its own name. */
function nameOf(say: Say, key: string): string {
  return key in NAMED ? say(NAMED[key as keyof typeof NAMED]) : key.replaceAll("_", " ");
}

/** Empty where nothing is said. */
function written(say: Say, key: string, value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return say(value ? "system.yes" : "system.no");
  if (typeof value === "number") return key.endsWith("_bytes") ? bytes(value) : value.toLocaleString();
  if (typeof value === "string") return value;
  const parts = Object.entries(value);
  if (key === "dtypes") return parts.map(([name, count]) => `${name} × ${String(count)}`).join(", ");
  if (key === "sampling") return parts.map(([name, one]) => `${name} ${String(one)}`).join(", ");
  return parts.length === 0 ? "" : JSON.stringify(value);
}
