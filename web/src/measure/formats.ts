import { bytes, seconds, short } from "../parts/format";
import { FORMS, type Form, type Metric } from "./metrics";

const WRITTEN: Record<Form, (value: number) => string> = {
  number: short,
  seconds,
  bytes,
  share: (value) => `${(value * 100).toFixed(1)} %`,
};

export function written(metric: Metric): (value: number) => string {
  return WRITTEN[FORMS[metric]];
}
