import type { Measurement } from "../api/records";
import { useSay } from "../language/say";
import { short } from "../parts/format";

/** What a record says besides its numbers. */
export function RecordDetails({ one }: { one: Measurement }) {
  const say = useSay();
  const rows: [string, string | null][] = [
    [say("measure.message"), one.message],
    [say("measure.command"), one.command],
    [
      say("measure.commit"),
      one.commit && `${one.commit.slice(0, 12)}${one.modified ? `, ${say("measure.modified")}` : ""}`,
    ],
    [say("measure.settings"), pairs(one.settings)],
    [say("measure.passes"), one.passes?.join(", ") ?? null],
    [say("measure.series"), series(one)],
    [say("measure.notes"), one.notes.join(" ")],
  ];
  return (
    <dl className="record">
      {rows
        .filter(([, value]) => value !== null && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="mono">{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function pairs(values: Record<string, unknown>): string {
  return Object.entries(values)
    .map(([name, value]) => `${name} = ${String(value)}`)
    .join(", ");
}

function series(one: Measurement): string {
  return Object.entries(one.series)
    .map(([name, { unit, summary }]) => {
      const { median, min, max, count } = summary;
      return `${name}: ${short(median)} ${unit} (${short(min)} – ${short(max)}, n = ${count})`;
    })
    .join("; ");
}
