import { useState } from "react";

import type { Measurement } from "../api/records";
import { useSay } from "../language/say";
import { SelectField } from "../parts/SelectField";
import { BarPlot } from "./BarPlot";
import { written } from "./formats";
import { LinePlot } from "./LinePlot";
import { barsOf, linesOf } from "./lines";
import { axesOf, METRICS, valueOf, type Metric } from "./metrics";

/** One number of the measurements, over a setting where they vary one. */
export function PlotPanel({ measurements }: { measurements: Measurement[] }) {
  const say = useSay();
  const known = METRICS.filter((metric) => measurements.some((one) => valueOf(one, metric) !== null));
  const axes = axesOf(measurements);
  const [wanted, setWanted] = useState<Metric>("rate");
  const [over, setOver] = useState<string | null>(null);
  const metric = known.includes(wanted) ? wanted : (known[0] ?? "rate");
  const axis = over !== null && (over === "" || axes.includes(over)) ? over : (axes[0] ?? "");
  const name = say("measure.plot.name", {
    metric: say(`measure.metric.${metric}`),
    axis: axis === "" ? say("measure.plot.axis.none") : axis,
  });
  return (
    <section className="card" aria-label={say("measure.plot")}>
      <div className="row">
        <SelectField
          name="metric"
          label={say("measure.plot.metric")}
          value={metric}
          options={METRICS.map((one) => [one, say(`measure.metric.${one}`)] as const)}
          onChange={(value) => {
            setWanted(value as Metric);
          }}
        />
        <SelectField
          name="axis"
          label={say("measure.plot.axis")}
          value={axis}
          options={[["", say("measure.plot.axis.none")], ...axes.map((one) => [one, one] as const)]}
          onChange={setOver}
        />
      </div>
      <Drawn name={name} measurements={measurements} axis={axis} metric={metric} />
    </section>
  );
}

interface DrawnProps {
  name: string;
  measurements: Measurement[];
  axis: string;
  metric: Metric;
}

function Drawn({ name, measurements, axis, metric }: DrawnProps) {
  const say = useSay();
  const format = written(metric);
  if (axis !== "") {
    const lines = linesOf(measurements, axis, metric);
    if (lines.length > 0) return <LinePlot name={name} lines={lines} xName={axis} format={format} />;
  }
  const bars = axis === "" ? barsOf(measurements, metric) : [];
  if (bars.length > 0) return <BarPlot name={name} bars={bars} format={format} />;
  return <p className="quiet">{say("measure.plot.empty")}</p>;
}
