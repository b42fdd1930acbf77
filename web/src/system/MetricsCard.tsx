import { useState } from "react";

import { addressOf } from "../api/client";
import { readMetrics } from "../api/system";
import { useSay } from "../language/say";
import { bytes, seconds, short } from "../parts/format";
import { useAsked } from "../parts/useAsked";
import { Scrolled } from "../parts/Scrolled";
import { meanOf, parseMetrics, type Family } from "./prometheus";

const EVERY_MS = 5000;
const OURS = "calotype_";

/** The deployment's own counters, in words. */
export function MetricsCard() {
  const say = useSay();
  const { answer } = useAsked(readMetrics, EVERY_MS);
  const [text, setText] = useState("");
  const families = parseMetrics(answer ?? "").filter(
    (family) =>
      family.name.startsWith(OURS) &&
      `${family.name} ${family.help}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <section className="card wide" aria-label={say("system.metrics")}>
      <div className="row spread">
        <h2>{say("system.metrics")}</h2>
        <div className="row">
          <input
            type="search"
            aria-label={say("system.metrics.filter")}
            placeholder={say("system.metrics.filter")}
            value={text}
            onChange={(event) => {
              setText(event.target.value);
            }}
          />
          <a className="button" href={addressOf("metrics").href} target="_blank" rel="noreferrer">
            {say("system.metrics.raw")}
          </a>
        </div>
      </div>
      <Scrolled label={say("system.metrics")}>
        <table>
          <thead>
            <tr>
              <th scope="col">{say("system.metrics.name")}</th>
              <th scope="col" className="number">
                {say("system.metrics.value")}
              </th>
            </tr>
          </thead>
          <tbody>
            {families.flatMap((family) => (
              <MetricRows key={family.name} family={family} />
            ))}
          </tbody>
        </table>
      </Scrolled>
    </section>
  );
}

function MetricRows({ family }: { family: Family }) {
  const say = useSay();
  if (family.kind === "histogram") {
    const { count, mean } = meanOf(family);
    const value =
      mean === null ? "0" : say("system.metrics.mean", { count, mean: written(family.name, mean) });
    return <MetricRow help={family.help} value={value} />;
  }
  return family.samples.map((sample) => (
    <MetricRow
      key={sample.labels}
      help={sample.labels === "" ? family.help : `${family.help} · ${sample.labels.replaceAll('"', "")}`}
      value={written(family.name, sample.value)}
    />
  ));
}

function MetricRow({ help, value }: { help: string; value: string }) {
  return (
    <tr>
      <td>{help}</td>
      <td className="number">{value}</td>
    </tr>
  );
}

function written(name: string, value: number): string {
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_seconds")) return seconds(value);
  return short(value);
}
