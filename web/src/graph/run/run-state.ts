/**
 * What is known of this graph's runs: which are unfinished, what each node is doing, what it made, what went wrong.
 * Pure: the server's messages in, a new state out. Knows nothing of sockets or the screen.
 */
import type { Message, Picture } from "./messages";

export interface NodeRun {
  readonly state: "running" | "done" | "cached";
  readonly value: number;
  readonly maximum: number;
}

export interface Problem {
  readonly node: string | null;
  readonly input: string | null;
  readonly message: string;
  readonly details: string;
}

export type Ending = "success" | "failed" | "cancelled";

export interface RunState {
  /** Runs of this graph that were asked for and have not ended, oldest first. */
  readonly unfinished: readonly string[];
  /** The one of them that is running now. */
  readonly current: string | null;
  readonly nodes: ReadonlyMap<string, NodeRun>;
  readonly pictures: ReadonlyMap<string, readonly Picture[]>;
  /** What a sampler sees, as an address for an image, by node. */
  readonly previews: ReadonlyMap<string, string>;
  readonly problems: ReadonlyMap<string | null, readonly Problem[]>;
  /** What is wrong with the parts that unfinished runs do without, by run. */
  readonly leftOut: ReadonlyMap<string, readonly Problem[]>;
  readonly ending: Ending | null;
  /** How many runs the server has left to do, everybody's. */
  readonly queued: number;
}

export const NO_RUN: RunState = {
  unfinished: [],
  current: null,
  nodes: new Map(),
  pictures: new Map(),
  previews: new Map(),
  problems: new Map(),
  leftOut: new Map(),
  ending: null,
  queued: 0,
};

export function asked(run: RunState, id: string): RunState {
  return { ...run, unfinished: [...run.unfinished, id], problems: new Map(), ending: null };
}

export function refused(run: RunState, id: string, problems: readonly Problem[]): RunState {
  const unfinished = run.unfinished.filter((one) => one !== id);
  return { ...run, unfinished, problems: byNode(problems), ending: "failed" };
}

/** A run that does without the parts of its graph that cannot run. */
export function acceptedInPart(run: RunState, id: string, problems: readonly Problem[]): RunState {
  const told = { ...run, problems: byNode(problems) };
  return run.unfinished.includes(id) ? { ...told, leftOut: new Map(run.leftOut).set(id, problems) } : told;
}

export function withoutProblems(run: RunState): RunState {
  return { ...run, problems: new Map(), leftOut: new Map() };
}

export function allProblems(run: RunState): Problem[] {
  return [...run.problems.values()].flat();
}

export function runningNode(run: RunState): string | null {
  for (const [id, node] of run.nodes) if (node.state === "running") return id;
  return null;
}

/** What a message changes; messages about other graphs' runs change only the length of the queue. */
export function heard(run: RunState, message: Message): RunState {
  if (message.type === "status") return { ...run, queued: message.queued };
  if (!run.unfinished.includes(message.prompt)) return run;
  switch (message.type) {
    case "start":
      return {
        ...run,
        current: message.prompt,
        nodes: new Map(),
        previews: new Map(),
        problems: byNode(leftOutOf(run, message.prompt)),
        ending: null,
      };
    case "cached": {
      const nodes = new Map(run.nodes);
      for (const id of message.nodes) nodes.set(id, { state: "cached", value: 0, maximum: 0 });
      return { ...run, nodes };
    }
    case "executing":
      return running({ ...run, current: message.prompt }, message.node, 0, 0);
    case "progress":
      return running({ ...run, current: message.prompt }, message.node, message.value, message.maximum);
    case "executed":
      return shown(done(run, message.node), message.node, message.pictures);
    case "success":
      return ended(run, message.prompt, "success");
    case "interrupted":
      return ended(run, message.prompt, "cancelled");
    case "error":
      return failed(run, message.prompt, message.problem);
  }
}

/** The node now at work; whichever was before it has done its part. */
function running(run: RunState, id: string | null, value: number, maximum: number): RunState {
  const nodes = new Map(run.nodes);
  for (const [other, node] of nodes) {
    if (node.state === "running" && other !== id) nodes.set(other, { ...node, state: "done" });
  }
  if (id !== null) nodes.set(id, { state: "running", value, maximum });
  return { ...run, nodes };
}

function done(run: RunState, id: string): RunState {
  const before = run.nodes.get(id);
  if (before?.state !== "running") return run;
  return { ...run, nodes: new Map(run.nodes).set(id, { ...before, state: "done" }) };
}

export function shown(run: RunState, id: string, pictures: readonly Picture[]): RunState {
  if (pictures.length === 0) return run;
  const previews = new Map(run.previews);
  previews.delete(id);
  return { ...run, pictures: new Map(run.pictures).set(id, pictures), previews };
}

export function previewed(run: RunState, address: string): RunState {
  const id = runningNode(run);
  return id === null ? run : { ...run, previews: new Map(run.previews).set(id, address) };
}

export function ended(run: RunState, id: string, ending: Ending): RunState {
  const unfinished = run.unfinished.filter((one) => one !== id);
  const leftOut = new Map([...run.leftOut].filter(([one]) => one !== id));
  if (run.current !== id && run.current !== null) return { ...run, unfinished, leftOut };
  // A node that did not get to finish is left as if it had not begun.
  const nodes = new Map(
    [...run.nodes].filter(([, node]) => ending === "success" || node.state !== "running"),
  );
  for (const [other, node] of nodes)
    if (node.state === "running") nodes.set(other, { ...node, state: "done" });
  return { ...run, unfinished, leftOut, current: null, nodes, previews: new Map(), ending };
}

function failed(run: RunState, id: string, problem: Problem): RunState {
  return { ...ended(run, id, "failed"), problems: byNode([problem, ...leftOutOf(run, id)]) };
}

function leftOutOf(run: RunState, id: string): readonly Problem[] {
  return run.leftOut.get(id) ?? [];
}

/** What became of a run while nobody listened. */
export interface Found {
  readonly id: string;
  readonly state: "waiting" | "running" | Ending;
  readonly pictures: ReadonlyMap<string, readonly Picture[]>;
  readonly problem: Problem | null;
}

export function foundAgain(run: RunState, found: Found): RunState {
  if (found.state === "waiting") return run;
  let now: RunState = { ...run, current: found.id };
  for (const [id, pictures] of found.pictures) now = shown(now, id, pictures);
  if (found.state === "running") return now;
  return found.problem ? failed(now, found.id, found.problem) : ended(now, found.id, found.state);
}

function byNode(problems: readonly Problem[]): Map<string | null, Problem[]> {
  const found = new Map<string | null, Problem[]>();
  for (const problem of problems) found.set(problem.node, [...(found.get(problem.node) ?? []), problem]);
  return found;
}
