import { expect, test } from "vitest";

import { FIRST_STATE, documentOf, reduce, wholeOf, type Action, type State } from "../state";
import { CATALOGUE } from "../testing/object-info";
import file from "../testing/subgraphs.json";
import { problemsOf, runOf } from "../view/in-run";
import { asked } from "../run/run-state";
import { writeApi } from "./api-format";
import { copied, pasted } from "./clipboard";
import { EMPTY_DOCUMENT, type GraphDocument } from "./document";
import { removeNodes, setValue } from "./edits";
import { writeEditor } from "./editor-writing";
import { readEditor } from "./subgraph-reading";
import { withSubgraphs } from "./subgraphs";

const WORDS = "5a1b8c90-3f4d-4b3e-9a51-0c6f1d2e3a4b";
const SAMPLE = "c07d2a6e-91f8-4f0b-8d4e-7b5a6c9e1f20";
const WHOLE = readEditor(CATALOGUE, file);

const START = [
  { type: "catalogue", catalogue: CATALOGUE } as const,
  { type: "restored", document: WHOLE } as const,
].reduce(reduce, FIRST_STATE);

const after = (...actions: Action[]): State => actions.reduce(reduce, START);
const enter = (...path: string[]): Action => ({ type: "entered", path });
const edit = (change: (document: GraphDocument) => GraphDocument): Action => ({ type: "edit", edit: change });

test("a subgraph's node has its name, its sockets and the widgets inside that it stands for", () => {
  const kind = withSubgraphs(CATALOGUE, WHOLE.subgraphs).get(WORDS);
  expect(kind).toMatchObject({ title: "Words to latent", virtual: "subgraph" });
  expect(kind?.inputs.map(({ name, type, widget }) => [name, type, widget])).toEqual([
    ["model", "MODEL", null],
    ["clip", "CLIP", null],
    ["text", "STRING", "text"],
    // By way of another subgraph.
    ["seed", "INT", "integer"],
  ]);
  expect(WHOLE.nodes.get("12")?.values).toEqual({ text: "a red apple", seed: 11 });
});

test("what runs is unpacked: values come in from outside, links go through", () => {
  const prompt = writeApi(CATALOGUE, WHOLE);
  expect(Object.keys(prompt).sort()).toEqual(["12:1", "12:2:1", "12:5", "12:7", "4", "8", "9"]);
  expect(prompt["12:1"]?.inputs).toEqual({ text: "a red apple", clip: ["4", 1] });
  expect(prompt["12:7"]?.inputs).toEqual({ text: "blurred", clip: ["4", 1] });
  expect(prompt["12:2:1"]?.inputs).toMatchObject({
    model: ["4", 0],
    positive: ["12:1", 0],
    negative: ["12:7", 0],
    latent_image: ["12:5", 0],
    seed: 11,
    steps: 2,
  });
  expect(prompt["8"]?.inputs.samples).toEqual(["12:2:1", 0]);
});

test("a file with subgraphs is written back with everything it said", () => {
  const written = writeEditor(CATALOGUE, WHOLE);
  expect((written.nodes as object[])[1]).toMatchObject({
    widgets_values: [null, "a red apple", 11],
    properties: file.nodes[1]?.properties,
    inputs: file.nodes[1]?.inputs,
  });
  const definitions = written.definitions as unknown as typeof file.definitions;
  expect(definitions.kept).toEqual([1]);
  for (const [index, filed] of file.definitions.subgraphs.entries()) {
    const now = definitions.subgraphs[index];
    expect({ ...now, nodes: [] }).toEqual({ ...filed, nodes: [] });
    for (const [place, node] of filed.nodes.entries()) {
      expect({ ...now?.nodes[place], order: 0 }).toMatchObject(node);
    }
  }
  expect(writeEditor(CATALOGUE, readEditor(CATALOGUE, written))).toEqual(written);
});

test("inside a subgraph it is edited, undone and left like anything else", () => {
  let state = after(enter("12", "2"));
  expect([...documentOf(state).nodes.keys()]).toEqual(["1", "-10", "-20"]);
  state = reduce(
    state,
    edit((document) => setValue(document, "1", "steps", 9)),
  );
  expect(writeApi(CATALOGUE, wholeOf(state))["12:2:1"]?.inputs.steps).toBe(9);
  // Nothing but the value has changed: no node of the rest is drawn again.
  expect(state.catalogue).toBe(START.catalogue);
  state = reduce(
    state,
    edit((document) => removeNodes(document, ["-10", "-20"])),
  );
  expect(documentOf(state).nodes.size).toBe(3);
  state = reduce(state, { type: "undone" });
  expect(wholeOf(state)).toBe(WHOLE);
  expect(state.path).toEqual(["12", "2"]);
  state = [enter(), edit((document) => removeNodes(document, ["12"]))].reduce(reduce, state);
  expect(reduce(state, enter("12")).path).toEqual([]);
});

test("what is gone by an undo cannot be stood in", () => {
  const bare = reduce(after(), { type: "restored", document: EMPTY_DOCUMENT });
  const state = [{ type: "opened", document: WHOLE } as const, enter("12")].reduce(reduce, bare);
  expect(documentOf(state).name).toBe("Words to latent");
  const undone = reduce(state, { type: "undone" });
  expect(undone.path).toEqual([]);
  expect(documentOf(undone).nodes.size).toBe(0);
});

test("a subgraph is renamed where it is, and its nodes with it", () => {
  const state = after(
    enter("12"),
    edit((document) => ({ ...document, name: "Anew" })),
  );
  expect(state.catalogue.get(WORDS)?.title).toBe("Anew");
});

test("copied nodes take along what they stand for, all the way in", () => {
  const text = copied(START.catalogue, WHOLE, new Set(["12", "4"]));
  const there = pasted(CATALOGUE, EMPTY_DOCUMENT, text, { x: 0, y: 0 });
  expect([...(there?.document.subgraphs.keys() ?? [])]).toEqual([WORDS, SAMPLE]);
  expect(there?.document.links).toHaveLength(2);
});

test("a run inside a subgraph shows on its node, and inside on the node itself", () => {
  const running = after(
    { type: "run", change: (run) => asked(run, "p") },
    { type: "message", message: { type: "progress", prompt: "p", node: "12:2:1", value: 1, maximum: 2 } },
  );
  expect(runOf(running, "12")).toMatchObject({ state: "running", value: 1 });
  expect(runOf(running, "4")).toBeUndefined();
  expect(runOf(reduce(running, enter("12", "2")), "1")).toBe(runOf(running, "12"));
  const problem = { node: "12:5", input: null, message: "no", details: "" };
  const failed = reduce(running, { type: "message", message: { type: "error", prompt: "p", problem } });
  expect(problemsOf(failed, "12")).toEqual([problem]);
  expect(problemsOf(reduce(failed, enter("12")), "5")).toEqual([problem]);
});

test("a subgraph that holds itself ends", () => {
  const [words] = file.definitions.subgraphs;
  const own = { id: 99, type: WORDS, pos: [0, 0] };
  const inside = { ...words, nodes: [...(words?.nodes ?? []), own] };
  const held = readEditor(CATALOGUE, { ...file, definitions: { subgraphs: [inside] } });
  expect(Object.keys(writeApi(CATALOGUE, held)).length).toBeLessThan(100);
});
