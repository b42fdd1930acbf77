import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import { parse, stringify } from "../../api/json";
import { CATALOGUE, OBJECT_INFO } from "../testing/object-info";
import { roundTrip } from "../testing/round-trip";
import { SHAPES, valuesOf } from "../testing/shapes";
import { writeApi } from "./api-format";
import { EMPTY_CATALOGUE, readCatalogue } from "./catalogue";
import { copied, pasted } from "./clipboard";
import { EMPTY_DOCUMENT, type GraphDocument } from "./document";
import { changeNode, connect, removeNodes, setControl, setValue } from "./edits";
import { writeEditor } from "./editor-writing";
import type { Json, JsonObject } from "./json";
import { readEditor } from "./subgraph-reading";

const shape = (name: string): JsonObject => {
  const [key] = Object.keys(SHAPES).filter((one) => one.startsWith(name));
  return SHAPES[key ?? ""] ?? {};
};
const opened = (name: string): GraphDocument => readEditor(CATALOGUE, shape(name));
const saved = (document: GraphDocument): JsonObject =>
  parse(stringify(writeEditor(CATALOGUE, document))) as JsonObject;

test.each(Object.keys(SHAPES))("saved as it was opened: %s", (name) => {
  const text = stringify(shape(name));
  expect(roundTrip(CATALOGUE, text)).toEqual([]);
  // A server that has none of these kinds of node changes nothing either.
  expect(roundTrip(EMPTY_CATALOGUE, text)).toEqual([]);
});

test("a primitive's value is saved when it changes", () => {
  const changed = setValue(setValue(opened("primitive"), "2", "value", "a sea"), "1", "value", 5);
  const written = saved(setControl(changed, "1", "value", "fixed"));
  expect(valuesOf(written, 1)).toEqual([5, "fixed"]);
  expect(valuesOf(written, 2)).toEqual(["a sea"]);
  expect(writeApi(CATALOGUE, changed)["5"]?.inputs.text).toBe("a sea");
});

test("inputs of a subgraph that stand for widgets of unknown nodes keep their places", () => {
  const document = opened("a subgraph without notes");
  expect(document.nodes.get("20")?.values).toEqual({
    caption: "outer words",
    strength: { level: 7 },
    seed: 99,
  });
  expect(writeApi(CATALOGUE, document)["20:2"]?.inputs.seed).toBe(99);
  expect(valuesOf(saved(setValue(document, "20", "seed", 5)), 20)).toEqual(["outer words", { level: 7 }, 5]);
});

test("a value that a subgraph's notes do not mention gets a note when it changes", () => {
  const written = saved(setValue(opened("a subgraph whose values"), "20", "seed", 5));
  expect(valuesOf(written, 20)).toEqual([null, null, null, null, 5]);
  const again = readEditor(CATALOGUE, written).nodes.get("20");
  expect(again?.values.seed).toBe(5);
  expect(again?.rest.properties).toEqual({
    proxyWidgets: [["1", "caption"], ["2", "seed"], ["-1", "caption"], ["-1", "strength"], ["-1", "seed"]], // prettier-ignore
  });
});

test("a changed value goes to its own place, whatever else a list holds", () => {
  let document = opened("lists that are");
  for (const id of ["1", "2", "3", "4", "5", "7"]) document = setValue(document, id, "steps", 11);
  const written = saved(document);
  expect(valuesOf(written, 1)).toEqual([7, "fixed", 11, 8, "euler", "normal", 1]);
  expect(valuesOf(written, 2)).toEqual([7, "fixed", 11, 8, "euler", "normal", 1, "extra", null]);
  expect(valuesOf(written, 3)).toEqual([8566257, true, 11, 8, "euler", "normal", 0.5]);
  expect(valuesOf(written, 4)).toEqual([8566257, 11, 8, "euler", "normal", 0.5]);
  expect(valuesOf(written, 5)).toEqual([0, "randomize", 11, 8, "euler", "normal", 1]);
  expect(valuesOf(written, 6)).toBeNull();
  expect(valuesOf(written, 7)).toEqual([0, "randomize", 11, 8, "euler", "normal", 1]);
  for (const id of ["1", "2", "3", "4", "5", "7"])
    expect(readEditor(CATALOGUE, written).nodes.get(id)?.values.steps).toBe(11);
});

test("a changed value is saved under its name as well, where a file has names", () => {
  const document = setValue(setValue(opened("values by name"), "1", "text", "new"), "2", "text", "newer");
  const [one, other] = saved(document).nodes as JsonObject[];
  expect(one?.widgets_values).toEqual({ text: "new", more: 1 });
  expect(other).toMatchObject({ widgets_values: ["newer"], widgets_values_named: { text: "newer" } });
});

test("links that cannot be drawn go with their nodes, and new links get numbers of their own", () => {
  const document = opened("links that cannot");
  const without = saved(removeNodes(document, ["2"]));
  expect(without.links).toEqual([[3, 1, 1, 3, 0, "NEW"], [4, 1, 0, 99, 0, "LATENT"], null]); // prettier-ignore
  const ends = { from: "1", output: 0, to: "3", input: "samples" };
  const joined = saved(connect(CATALOGUE, document, ends));
  expect(joined.links).toContainEqual([5, 1, 0, 3, 0, "LATENT"]);
  expect(joined.links).not.toContainEqual([3, 1, 1, 3, 0, "NEW"]);
});

test("nodes that are pasted name no link of the graph that they come from", () => {
  const text = copied(CATALOGUE, opened("primitive"), new Set(["2", "5"]));
  const there = pasted(CATALOGUE, EMPTY_DOCUMENT, text, { x: 0, y: 0 })?.document ?? EMPTY_DOCUMENT;
  expect(valuesOf(saved(there), 1)).toEqual(["a lake"]);
  const [primitive] = saved({ ...there, links: [] }).nodes as { outputs: JsonObject[] }[];
  expect(primitive?.outputs[0]?.links).toEqual([]);
});

test("a new title and a new mode are saved, and what else a node says stays", () => {
  const document = changeNode(opened("muted and"), "1", { mode: "active", collapsed: false, title: "New" });
  const [node] = saved(document).nodes as JsonObject[];
  expect(node).toMatchObject({ mode: 0, flags: { pinned: true }, title: "New", pos: [10, 20] });
  expect(node?.flags).not.toHaveProperty("collapsed");
});

/**
 * `CALOTYPE_WORKFLOWS=FOLDER npm run unit -- round-trip` also opens and saves every workflow below a folder.
 * `CALOTYPE_OBJECT_INFO=FILE` names a server's `/object_info`, whose nodes are then the known ones.
 */
const folder = process.env.CALOTYPE_WORKFLOWS ?? "";
const info = process.env.CALOTYPE_OBJECT_INFO;
const files = folder ? readdirSync(folder, { recursive: true, encoding: "utf8" }) : [];

test.each(files.filter((name) => name.endsWith(".json")))("saved as it was opened: %s", (name) => {
  const known = readCatalogue(info ? (parse(readFileSync(info, "utf8")) as Json) : OBJECT_INFO);
  expect(roundTrip(known, readFileSync(join(folder, name), "utf8")) ?? []).toEqual([]);
});
