import { useState } from "react";

import { readReports, reportAddress } from "../api/records";
import { useLanguage } from "../language/say";
import { moment } from "../parts/format";
import { useAsked } from "../parts/useAsked";

/** Finished report pages, shown in a frame of their own. */
export function Reports() {
  const { say, language } = useLanguage();
  const { answer } = useAsked(readReports);
  const [shown, setShown] = useState<string | null>(null);
  if (answer === null) return null;
  return (
    <section className="card" aria-label={say("measure.reports")}>
      <h2>{say("measure.reports")}</h2>
      {answer.length === 0 && <p className="quiet">{say("measure.reports.none")}</p>}
      <ul className="plain-list">
        {answer.map((report) => (
          <li key={report.name}>
            <button
              type="button"
              className="plain link"
              aria-label={say("measure.report.show", { name: report.name })}
              onClick={() => {
                setShown(report.name);
              }}
            >
              {report.name}
            </button>{" "}
            <span className="quiet">{moment(report.at, language)}</span>
          </li>
        ))}
      </ul>
      {shown !== null && (
        <>
          <button
            type="button"
            onClick={() => {
              setShown(null);
            }}
          >
            {say("measure.report.close")}
          </button>
          <iframe
            className="report"
            src={reportAddress(shown)}
            title={shown}
            sandbox="allow-scripts allow-popups"
          />
        </>
      )}
    </section>
  );
}
