import { useState } from "react";

import { readRecords, type Records } from "../api/records";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAsked } from "../parts/useAsked";
import { EVERYTHING, filtered } from "./filter";
import { FilterBar } from "./FilterBar";
import { PlotPanel } from "./PlotPanel";
import { RecordTable } from "./RecordTable";
import { Reports } from "./Reports";
import "./measure.css";

/** What was measured here, as plots and as a table. */
export function MeasureTab() {
  const say = useSay();
  const { answer, error } = useAsked(readRecords);
  return (
    <div className="room measure">
      <h1>{say("measure.title")}</h1>
      <Notice error={error} />
      {answer === null && error === null && <p className="quiet">{say("shell.loading")}</p>}
      {answer && <Found records={answer} />}
      {answer && <Reports />}
    </div>
  );
}

function Found({ records }: { records: Records }) {
  const say = useSay();
  const [filter, setFilter] = useState(EVERYTHING);
  const shown = filtered(records.measurements, filter);
  if (records.measurements.length === 0)
    return (
      <div className="card">
        <p>
          {say("measure.none")} <code>calotype bench sweep …</code>
        </p>
        <p className="quiet">{say("measure.places", { places: records.places.join(", ") })}</p>
      </div>
    );
  return (
    <>
      <FilterBar records={records} filter={filter} onChange={setFilter} />
      <PlotPanel measurements={shown} />
      <section className="card" aria-label={say("measure.table")}>
        <p className="quiet" role="status">
          {say("measure.count", { n: shown.length, all: records.measurements.length })}{" "}
          {records.left_out > 0 && say("measure.left_out", { n: records.left_out })}
        </p>
        <RecordTable measurements={shown} />
        {records.faults.length > 0 && (
          <details>
            <summary>{say("measure.faults", { n: records.faults.length })}</summary>
            <ul>
              {records.faults.map((fault) => (
                <li key={fault}>{fault}</li>
              ))}
            </ul>
          </details>
        )}
      </section>
    </>
  );
}
