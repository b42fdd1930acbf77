import { useState } from "react";

import type { Measurement } from "../api/records";
import { useLanguage, useSay, type Say } from "../language/say";
import { moment } from "../parts/format";
import { written } from "./formats";
import { valueOf, type Metric } from "./metrics";
import { RecordDetails } from "./RecordDetails";

const SHOWN: readonly Metric[] = ["rate", "median", "p95", "memory", "share", "ssim"];

interface Column {
  name: string;
  value: (one: Measurement) => string | number | null;
  text: (one: Measurement) => string;
  numeric: boolean;
}

function columnsOf(say: Say, language: string): Column[] {
  const words = (name: string, value: (one: Measurement) => string | null): Column => ({
    name,
    value,
    text: (one) => value(one) ?? "–",
    numeric: false,
  });
  const numbers = SHOWN.map((metric): Column => ({
    name: say(`measure.metric.${metric}`),
    value: (one) => valueOf(one, metric),
    text: (one) => {
      const value = valueOf(one, metric);
      return value === null ? "–" : written(metric)(value);
    },
    numeric: true,
  }));
  return [
    words(say("measure.point"), (one) => one.point),
    words(say("measure.round"), (one) => String(one.round)),
    words(say("measure.model"), (one) => one.model),
    words(say("measure.preset"), (one) => one.preset ?? one.system),
    words(say("measure.device"), (one) => one.device),
    ...numbers,
    words(say("measure.status"), (one) => one.status),
    {
      name: say("measure.when"),
      value: (one) => one.started_at,
      text: (one) =>
        moment(one.started_at === null ? null : Date.parse(one.started_at) / 1000, language, "short"),
      numeric: false,
    },
  ];
}

/** All of them, sorted by any column; what has no value comes last. */
export function RecordTable({ measurements }: { measurements: Measurement[] }) {
  const { say, language } = useLanguage();
  const [by, setBy] = useState<{ column: number; down: boolean } | null>(null);
  const columns = columnsOf(say, language);
  const column = by ? columns[by.column] : undefined;
  const rows = column ? sorted(measurements, column, by?.down ?? false) : measurements;
  return (
    <div className="scrolled">
      <table className="records">
        <thead>
          <tr>
            {columns.map((head, at) => (
              <th
                key={head.name}
                scope="col"
                className={head.numeric ? "number" : ""}
                aria-sort={by?.column === at ? (by.down ? "descending" : "ascending") : "none"}
              >
                <button
                  type="button"
                  className="plain"
                  aria-label={say("measure.sort", { name: head.name })}
                  onClick={() => {
                    setBy({ column: at, down: by?.column === at ? !by.down : head.numeric });
                  }}
                >
                  {head.name}
                  {by?.column === at && (by.down ? " ↓" : " ↑")}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <Row key={`${one.run}/${one.id}/${one.round}`} one={one} columns={columns} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ one, columns }: { one: Measurement; columns: Column[] }) {
  const say = useSay();
  const [open, setOpen] = useState(false);
  return (
    <>
      <tr className={`status-${one.status}`}>
        {columns.map((column, at) => (
          <td key={column.name} className={column.numeric ? "number" : ""}>
            {at === 0 ? (
              <button
                type="button"
                className="plain link"
                aria-expanded={open}
                aria-label={say("measure.open", { point: one.point })}
                onClick={() => {
                  setOpen(!open);
                }}
              >
                {one.point}
              </button>
            ) : (
              column.text(one)
            )}
          </td>
        ))}
      </tr>
      {open && (
        <tr>
          <td colSpan={columns.length}>
            <RecordDetails one={one} />
          </td>
        </tr>
      )}
    </>
  );
}

function sorted(all: readonly Measurement[], column: Column, down: boolean): Measurement[] {
  return [...all].sort((one, other) => {
    const [left, right] = [column.value(one), column.value(other)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    const order = left < right ? -1 : Number(left > right);
    return down ? -order : order;
  });
}
