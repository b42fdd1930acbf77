import type { Job } from "../api/jobs";

const NO_SAMPLER_OF_GRAPHS = "pndm";

/** Whether a job's pictures can be opened as a graph that makes them: not where nodes have no word for what was asked. */
export function isGraphable({ kind, request }: Job): boolean {
  if (kind === "workflow") return true;
  const { image, clip_skip = 0, eta = null, sampler } = request;
  return !image && clip_skip === 0 && eta === null && sampler !== NO_SAMPLER_OF_GRAPHS;
}

export function addressInGraph(job: Job, index: number): string {
  return `#/graph/${job.id}/${index}`;
}
