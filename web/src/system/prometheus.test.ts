import { expect, test } from "vitest";

import { meanOf, parseMetrics } from "./prometheus";

const TEXT = `# HELP calotype_jobs_ended_total Jobs ended, by how
# TYPE calotype_jobs_ended_total counter
calotype_jobs_ended_total{state="done"} 12.0
calotype_jobs_ended_total{state="a } b"} 1.0
# HELP calotype_jobs_ended_created Jobs ended, by how
# TYPE calotype_jobs_ended_created gauge
calotype_jobs_ended_created{state="done"} 1.7e+09
# HELP calotype_step_seconds One UNet evaluation
# TYPE calotype_step_seconds histogram
calotype_step_seconds_bucket{le="0.1"} 3.0
calotype_step_seconds_count 4.0
calotype_step_seconds_sum 2.0
`;

test("families, labels and values are read", () => {
  const [ended, steps, ...others] = parseMetrics(TEXT);
  expect(others).toEqual([]);
  expect(ended?.samples.map(({ labels, value }) => [labels, value])).toEqual([
    ['state="done"', 12],
    ['state="a } b"', 1],
  ]);
  expect(steps && meanOf(steps)).toEqual({ count: 4, mean: 0.5 });
});
