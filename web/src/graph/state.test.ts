import { expect, test } from "vitest";

import { EDITOR_FILE } from "./testing/files";
import { CATALOGUE } from "./testing/object-info";
import { readEditor } from "./model/subgraph-reading";
import { setValue } from "./model/edits";
import { readMessage, readNodeErrors, readPreview, readRefusal, type Message } from "./run/messages";
import { readHistory } from "./run/asking";
import {
  acceptedInPart,
  allProblems,
  asked,
  foundAgain,
  refused,
  runningNode,
  withoutProblems,
} from "./run/run-state";
import { documentOf, FIRST_STATE, reduce, type Action, type State } from "./state";

const START: State = reduce(
  { ...FIRST_STATE, catalogue: CATALOGUE },
  { type: "restored", document: readEditor(CATALOGUE, EDITOR_FILE) },
);

function after(...actions: Action[]): State {
  return actions.reduce(reduce, START);
}

function said(type: string, data: Record<string, unknown>): Action {
  const message: Message | null = readMessage(JSON.stringify({ type, data: { prompt_id: "p", ...data } }));
  if (!message) throw new Error(type);
  return { type: "message", message };
}

const ASKED: Action = { type: "run", change: (run) => asked(run, "p") };
const states = (state: State) =>
  Object.fromEntries([...state.run.nodes].map(([id, node]) => [id, node.state]));

test("a run goes from node to node", () => {
  let state = after(ASKED, said("execution_start", {}), said("execution_cached", { nodes: ["4", "7"] }));
  state = [said("executing", { node: "3" }), said("progress", { node: "3", value: 7, max: 20 })].reduce(
    reduce,
    state,
  );
  expect(states(state)).toEqual({ "4": "cached", "7": "cached", "3": "running" });
  expect(state.run.nodes.get("3")).toMatchObject({ value: 7, maximum: 20 });
  state = reduce(state, said("executing", { node: "8" }));
  expect(states(state)).toMatchObject({ "3": "done", "8": "running" });
  const images = [{ filename: "a.png", subfolder: "", type: "output" }];
  state = [said("executed", { node: "9", output: { images } }), said("execution_success", {})].reduce(
    reduce,
    state,
  );
  expect(state.run).toMatchObject({ unfinished: [], current: null, ending: "success" });
  expect(state.run.pictures.get("9")).toEqual(images);
  expect(runningNode(state.run)).toBeNull();
});

test("a failure is on the node that caused it, a cancelled node as if it had not begun", () => {
  const began = [ASKED, said("execution_start", {}), said("executing", { node: "3" })];
  const failed = after(
    ...began,
    said("execution_error", {
      node_id: "3",
      exception_type: "ValueError",
      exception_message: "no",
      traceback: ["a\n"],
    }),
  );
  expect(failed.run.problems.get("3")).toEqual([
    { node: "3", input: null, message: "ValueError: no", details: "a\n" },
  ]);
  const cancelled = after(...began, said("execution_interrupted", { node_id: "3" }));
  expect(cancelled.run).toMatchObject({ ending: "cancelled", unfinished: [] });
  expect(states(cancelled)).toEqual({});
});

test("what is said of another graph's run changes nothing but the queue", () => {
  const state = after(said("execution_start", {}), said("executing", { node: "3" }));
  expect(state.run).toBe(START.run);
  const queue = after(said("status", { status: { exec_info: { queue_remaining: 4 } } }));
  expect(queue.run.queued).toBe(4);
});

test("opening another graph forgets the last one's run, and undo brings the graph back", () => {
  const running = after(ASKED, said("executing", { node: "3" }));
  const other = reduce(running, { type: "opened", document: { ...documentOf(START), name: "other" } });
  expect(other.run.nodes.size).toBe(0);
  expect(reduce(other, said("executing", { node: "3" })).run.nodes.size).toBe(0);
  expect(documentOf(reduce(other, { type: "undone" }))).toBe(documentOf(START));
});

test("every problem of a refused graph is on its node, and the summary only where nothing else is said", () => {
  const body = {
    error: { type: "prompt_outputs_failed_validation", message: "Prompt outputs failed validation" },
    node_errors: {
      "3": {
        errors: [{ message: "too big", details: "cfg", extra_info: { input_name: "cfg" } }, { message: "b" }],
      },
      "8": { errors: [{ message: "missing", details: "vae", extra_info: { input_name: "vae" } }] },
    },
  };
  const state = after(ASKED, { type: "run", change: (run) => refused(run, "p", readRefusal(body)) });
  expect(allProblems(state.run).map((problem) => [problem.node, problem.input])).toEqual([
    ["3", "cfg"],
    ["3", null],
    ["8", "vae"],
  ]);
  expect(readRefusal({ error: { message: "no outputs", details: "d" }, node_errors: {} })).toEqual([
    { node: null, input: null, message: "no outputs", details: "d" },
  ]);
  expect(readNodeErrors(undefined)).toEqual([]);
});

test("what a run does without is told until the next one, and beside what fails", () => {
  const unsound = { "12": { errors: [{ message: "missing", extra_info: { input_name: "images" } }] } };
  const accepted = (id: string): Action[] => [
    { type: "run", change: (run) => asked(run, id) },
    { type: "run", change: (run) => acceptedInPart(run, id, readNodeErrors(unsound)) },
  ];
  const told = (state: State) => allProblems(state.run).map((problem) => problem.node);
  const started = after(...accepted("p"), said("execution_start", {}));
  expect(told(started)).toEqual(["12"]);
  const done = reduce(started, said("execution_success", {}));
  expect([done.run.ending, told(done)]).toEqual(["success", ["12"]]);
  const sound = [{ type: "run", change: (run) => asked(run, "q") } as Action];
  expect(told([...sound, said("execution_start", { prompt_id: "q" })].reduce(reduce, done))).toEqual([]);

  const failure = said("execution_error", { node_id: "3", exception_type: "E", exception_message: "m" });
  const failed = after(...accepted("p"), ...accepted("q"), said("execution_start", {}), failure);
  expect(told(failed)).toEqual(["3", "12"]);
  expect(told(reduce(failed, said("execution_start", { prompt_id: "q" })))).toEqual(["12"]);

  const dismissed = after(...accepted("p"), { type: "run", change: withoutProblems });
  expect(told(reduce(dismissed, said("execution_start", {})))).toEqual([]);
});

test("a run that ended while nobody listened is found with its pictures or its failure", () => {
  const images = [{ filename: "a.png", subfolder: "", type: "output" }];
  const history = (status: object) => ({ p: { outputs: { "9": { images } }, status } }) as never;
  const done = readHistory("p", history({ status_str: "success", messages: [] }));
  const state = after(ASKED, { type: "run", change: (run) => foundAgain(run, done) });
  expect(state.run).toMatchObject({ unfinished: [], ending: "success" });
  expect(state.run.pictures.get("9")).toEqual(images);
  const error = ["execution_error", { node_id: "3", exception_type: "E", exception_message: "m" }];
  const failed = readHistory("p", history({ status_str: "error", messages: [error] }));
  expect(foundAgain(asked(START.run, "p"), failed).problems.get("3")).toHaveLength(1);
  expect(readHistory("p", {}).state).toBe("cancelled");
  const running = foundAgain(asked(START.run, "p"), { ...done, state: "running" });
  expect(running).toMatchObject({ unfinished: ["p"], current: "p" });
});

test("a preview is a picture of the kind its head says", async () => {
  const bytes = new Uint8Array([0, 0, 0, 1, 0, 0, 0, 2, 9, 8]).buffer;
  const picture = readPreview(bytes);
  expect(picture?.type).toBe("image/png");
  expect(picture?.size).toBe(2);
  expect(readPreview(new Uint8Array([0, 0, 0, 2, 0, 0, 0, 2, 9]).buffer)).toBeNull();
  await Promise.resolve();
});

test("a drag is undone at once, typing in another field on its own", () => {
  const move = (x: number): Action => ({ type: "moved", places: new Map([["3", { x, y: 0 }]]) });
  const type = (text: string): Action => ({
    type: "edit",
    edit: (document) => setValue(document, "6", "text", text),
    tag: "value:6:text",
  });
  let state = after({ type: "sealed" }, move(1), move(2), { type: "sealed" }, type("a"), type("ab"));
  state = reduce(state, { type: "undone" });
  expect(documentOf(state).nodes.get("6")?.values.text).toBe("a glass bottle");
  expect(documentOf(state).nodes.get("3")?.position.x).toBe(2);
  state = reduce(state, { type: "undone" });
  expect(documentOf(state)).toBe(documentOf(START));
});

test("deleting takes selected nodes, groups and links", () => {
  const selected: Action = { type: "selected", ids: new Set(["9", "group-1"]), links: new Set([1]) };
  const document = documentOf(after(selected, { type: "removed" }));
  expect(document.nodes.has("9")).toBe(false);
  expect(document.groups).toEqual([]);
  expect(document.links.map((link) => link.id)).toEqual([2, 3, 4, 5, 6, 7, 8]);
});

test("what was told of a file that was no graph is gone when another opens", () => {
  const told = after({ type: "notice", notice: "a.json is no graph" });
  expect(told.notice).toBe("a.json is no graph");
  const document = readEditor(CATALOGUE, EDITOR_FILE);
  expect(reduce(told, { type: "opened", document }).notice).toBeNull();
});
