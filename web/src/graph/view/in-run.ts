/**
 * What a run says of the nodes that are shown. A node that stands for a subgraph has what is said of the nodes inside.
 * Knows nothing of how it is drawn.
 */
import { nodeInRun, runId } from "../model/subgraphs";
import type { Picture } from "../run/messages";
import type { NodeRun, Problem } from "../run/run-state";
import { documentOf, wholeOf, type State } from "../state";

/** Nothing is made anew here: whoever asks compares by identity. */
function saidOf<Said>(state: State, said: ReadonlyMap<string | null, Said>, id: string): readonly Said[] {
  const own = said.get(runId(state.path, id));
  if (own !== undefined) return [own];
  if (!wholeOf(state).subgraphs.has(documentOf(state).nodes.get(id)?.type ?? "")) return [];
  const inside = `${runId(state.path, id)}:`;
  return [...said].flatMap(([key, one]) => (key?.startsWith(inside) ? [one] : []));
}

export function runOf(state: State, id: string): NodeRun | undefined {
  const said = saidOf(state, state.run.nodes, id);
  return (
    said.find((one) => one.state === "running") ?? said.find((one) => one.state === "done") ?? said.at(0)
  );
}

export function previewOf(state: State, id: string): string | undefined {
  return saidOf(state, state.run.previews, id).at(-1);
}

export function picturesOf(state: State, id: string): readonly Picture[] | undefined {
  return saidOf(state, state.run.pictures, id).at(-1);
}

export function problemsOf(state: State, id: string): readonly Problem[] | undefined {
  return saidOf(state, state.run.problems, id).at(0);
}

/** The node that a run means, wherever it is. */
export function nodeMeant(state: State, id: string | null) {
  return id === null ? undefined : nodeInRun(wholeOf(state), id);
}
