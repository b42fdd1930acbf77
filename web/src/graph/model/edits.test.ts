import { expect, test } from "vitest";

import { EDITOR_FILE } from "../testing/files";
import { CATALOGUE } from "../testing/object-info";
import { copied, pasted } from "./clipboard";
import { EMPTY_DOCUMENT, linkInto } from "./document";
import * as edits from "./edits";
import { readEditor } from "./subgraph-reading";
import { firstGraph } from "./first-graph";
import { begin, record, redo, seal, undo } from "./history";
import { arranged, estimatedSize } from "./layout";
import { writeApi } from "./api-format";
import { refusal } from "./typing";

const DOCUMENT = readEditor(CATALOGUE, EDITOR_FILE);

test("a link of the wrong type is refused, with what is given and what is wanted", () => {
  const ends = { from: "4", output: 0, to: "8", input: "samples" };
  expect(refusal(CATALOGUE, DOCUMENT, ends)).toEqual({
    reason: "type",
    given: "MODEL",
    wanted: "LATENT",
    input: "VAE Decode · samples",
  });
  expect(edits.connect(CATALOGUE, DOCUMENT, ends)).toBe(DOCUMENT);
});

test("a circle is refused", () => {
  const sampler = CATALOGUE.get("KSampler");
  if (!sampler) throw new Error("KSampler");
  const two = edits.addNode(DOCUMENT, sampler, { x: 0, y: 0 });
  const chained = edits.connect(CATALOGUE, two, { from: "3", output: 0, to: "10", input: "latent_image" });
  expect(chained.links).toHaveLength(10);
  const back = { from: "10", output: 0, to: "3", input: "latent_image" };
  expect(refusal(CATALOGUE, chained, back)).toMatchObject({ reason: "circle" });
  expect(refusal(CATALOGUE, chained, { ...back, from: "3" })).toEqual({ reason: "itself" });
});

test("an input holds one link: the newer", () => {
  const after = edits.connect(CATALOGUE, DOCUMENT, { from: "6", output: 0, to: "3", input: "negative" });
  expect(linkInto(after, "3", "negative")?.from).toBe("6");
  expect(after.links).toHaveLength(9);
});

test("a reroute takes on the type that is fed to it", () => {
  const reroute = CATALOGUE.get("Reroute");
  if (!reroute) throw new Error("Reroute");
  let document = edits.addNode(DOCUMENT, reroute, { x: 0, y: 0 });
  document = edits.connect(CATALOGUE, document, { from: "4", output: 2, to: "10", input: "" });
  expect(refusal(CATALOGUE, document, { from: "10", output: 0, to: "8", input: "samples" })).toMatchObject({ given: "VAE" }); // prettier-ignore
  document = edits.connect(CATALOGUE, document, { from: "10", output: 0, to: "8", input: "vae" });
  document = edits.connect(CATALOGUE, document, { from: "4", output: 0, to: "10", input: "" });
  expect(linkInto(document, "8", "vae")).toBeUndefined();
});

test("removing a node removes its links and nothing else", () => {
  const after = edits.removeNodes(DOCUMENT, ["3"]);
  expect(after.links.map((link) => link.id)).toEqual([3, 5, 8, 9]);
  expect(after.nodes.get("4")).toBe(DOCUMENT.nodes.get("4"));
});

test("changing one value leaves every other node as it is", () => {
  const after = edits.setValue(DOCUMENT, "3", "steps", 4);
  for (const [id, node] of after.nodes) expect(node === DOCUMENT.nodes.get(id)).toBe(id !== "3");
  expect(edits.setValue(after, "3", "steps", 4)).toBe(after);
});

test("seeds do after a run what they are told to", () => {
  const half = () => 0.5;
  expect(edits.nextSeed(5, "fixed", null, half)).toBe(5);
  expect(edits.nextSeed(5, "increment", null, half)).toBe(6);
  expect(edits.nextSeed(0, "decrement", null, half)).toBe(0);
  expect(edits.nextSeed(5, "randomize", 2 ** 64, half)).toBe(2 ** 49);
  expect(edits.nextSeed(18446744073709551614n, "decrement", 2 ** 64, half)).toBe(18446744073709551613n);
  expect(edits.afterRun(CATALOGUE, DOCUMENT, half).nodes.get("3")?.values.seed).toBe(2 ** 49);
});

test("undo goes back one spell of changes at a time, redo forth, a new change ends redo", () => {
  let history = begin("");
  for (const text of ["a", "ab"]) history = record(history, text, "typing");
  history = record(seal(history), "abc", "typing");
  expect(undo(history).present).toBe("ab");
  expect(undo(undo(history)).present).toBe("");
  expect(undo(undo(undo(history))).present).toBe("");
  expect(redo(undo(history)).present).toBe("abc");
  expect(redo(record(undo(history), "z")).present).toBe("z");
});

test("copies arrive with new ids, their links among themselves, at the place asked for", () => {
  const text = copied(CATALOGUE, DOCUMENT, new Set(["3", "8", "group-1"]));
  const result = pasted(CATALOGUE, DOCUMENT, text, { x: 10, y: 20 });
  expect([...(result?.ids ?? [])]).toEqual(["10", "11", "group-2"]);
  const document = result?.document ?? EMPTY_DOCUMENT;
  expect(document.nodes.get("10")?.values).toEqual(DOCUMENT.nodes.get("3")?.values);
  expect(document.links.slice(9)).toEqual([{ id: 10, from: "10", output: 0, to: "11", input: "samples" }]);
  expect(document.groups[1]).toMatchObject({ x: 10, title: "Words" });
  expect(pasted(CATALOGUE, DOCUMENT, "some text", { x: 0, y: 0 })).toBeNull();
});

test("a layout reads from left to right and nothing overlaps", () => {
  const after = arranged(CATALOGUE, DOCUMENT, new Map());
  const boxes = [...after.nodes.values()].map((node) => ({
    ...node.position,
    ...estimatedSize(CATALOGUE, node),
  }));
  for (const [index, a] of boxes.entries()) {
    for (const b of boxes.slice(index + 1)) {
      const apart =
        a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
      expect(apart).toBe(true);
    }
  }
  for (const link of after.links) {
    expect(after.nodes.get(link.from)?.position.x).toBeLessThan(after.nodes.get(link.to)?.position.x ?? 0);
  }
});

test("the first graph is whole", () => {
  const prompt = writeApi(CATALOGUE, firstGraph(CATALOGUE, "a tree", 128));
  expect(Object.keys(prompt).sort()).toEqual(["3", "4", "5", "6", "7", "8", "9"]);
  expect(prompt["3"]?.inputs).toMatchObject({ model: ["4", 0], positive: ["6", 0], negative: ["7", 0] });
  expect(prompt["6"]?.inputs.text).toBe("a tree");
  expect(prompt["5"]?.inputs).toMatchObject({ width: 128, height: 128 });
  expect(prompt["9"]?.inputs).toMatchObject({ images: ["8", 0] });
});
