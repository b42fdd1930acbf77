import { expect, test } from "vitest";

import { stringify } from "../../api/json";
import { API_FILE, EDITOR_FILE } from "../testing/files";
import { CATALOGUE } from "../testing/object-info";
import { readApi, writeApi } from "./api-format";
import type { GraphNode } from "./document";
import { setControl } from "./edits";
import { readEditor } from "./subgraph-reading";
import { writeEditor } from "./editor-writing";
import { isObject, type Json, type JsonObject } from "./json";
import { NoGraphError, openCarried, openJson, openText } from "./opening";

function nodeOf(file: Json, id: number): JsonObject {
  const nodes = isObject(file) && Array.isArray(file.nodes) ? (file.nodes as JsonObject[]) : [];
  const found = nodes.find((node) => node.id === id);
  if (!found) throw new Error(`no node ${id}`);
  return found;
}

test("an editor's file becomes what runs, every value under its name", () => {
  expect(writeApi(CATALOGUE, readEditor(CATALOGUE, EDITOR_FILE))).toEqual(API_FILE);
});

test("what runs is read back and written the same, 64-bit seed included", () => {
  const text = stringify(API_FILE);
  expect(stringify(writeApi(CATALOGUE, openText(CATALOGUE, text)))).toBe(text);
});

test("an editor's file is written back with everything it said", () => {
  const written = writeEditor(CATALOGUE, readEditor(CATALOGUE, EDITOR_FILE));
  expect(written).toMatchObject({ groups: EDITOR_FILE.groups, extra: EDITOR_FILE.extra, version: 0.4 });
  expect(written.links).toEqual(EDITOR_FILE.links);
  expect(nodeOf(written, 6)).toMatchObject({ color: "#232", pos: [415, 186], size: [315, 98] });
  expect(nodeOf(written, 3)).toMatchObject({
    widgets_values: [18446744073709551615n, "randomize", 20, 8.5, "euler", "normal", 1],
    size: { "0": 315, "1": 262 },
  });
  expect(nodeOf(written, 4)).toMatchObject({ title: "The model", mode: 0 });
  expect(writeEditor(CATALOGUE, readEditor(CATALOGUE, written))).toEqual(written);
});

test("a seed without the word for what happens after a run is old, and stays fixed", () => {
  const file = { nodes: [{ id: 1, type: "KSampler", widgets_values: [7, 20, 8, "euler", "karras", 0.5] }] };
  const node = readEditor(CATALOGUE, file).nodes.get("1");
  expect(node?.values).toMatchObject({ seed: 7, steps: 20, scheduler: "karras", denoise: 0.5 });
  expect(node?.controls).toEqual({ seed: "fixed" });
});

test("a truth value after a seed is what very old files say of what happens after a run", () => {
  const opened = (random: boolean) => {
    const values = [8566257, random, 20, 8, "dpmpp_sde", "normal", 0.5];
    return readEditor(CATALOGUE, { nodes: [{ id: 1, type: "KSampler", widgets_values: values }] });
  };
  const document = opened(true);
  expect(document.nodes.get("1")?.values).toMatchObject({ seed: 8566257, steps: 20, cfg: 8, denoise: 0.5 });
  const drawn = setControl(document, "1", "seed", "increment");
  expect(nodeOf(writeEditor(CATALOGUE, drawn), 1).widgets_values).toEqual([
    8566257,
    "increment",
    20,
    8,
    "dpmpp_sde",
    "normal",
    0.5,
  ]);
  expect(opened(false).nodes.get("1")?.controls).toEqual({ seed: "fixed" });
});

test("the mark of the upload button is no value", () => {
  const file = { nodes: [{ id: 1, type: "LoadImage", widgets_values: ["cat.png", "image"] }] };
  const document = readEditor(CATALOGUE, file);
  expect(document.nodes.get("1")?.values).toEqual({ image: "cat.png" });
  expect(nodeOf(writeEditor(CATALOGUE, document), 1).widgets_values).toEqual(["cat.png", "image"]);
});

function withNode(id: string, change: Partial<GraphNode>) {
  const document = readEditor(CATALOGUE, EDITOR_FILE);
  const node = document.nodes.get(id);
  if (!node) throw new Error(id);
  return { ...document, nodes: new Map(document.nodes).set(id, { ...node, ...change }) };
}

test("a muted node takes its links with it", () => {
  const prompt = writeApi(CATALOGUE, withNode("7", { mode: "muted" }));
  expect(prompt["7"]).toBeUndefined();
  expect(prompt["3"]?.inputs).not.toHaveProperty("negative");
});

test("a bypassed node hands on what has the wanted type", () => {
  const lora = { id: 12, type: "LoraLoader", mode: 4, widgets_values: ["ink.safetensors", 1, 1] };
  const file = {
    nodes: [
      { id: 4, type: "CheckpointLoaderSimple", widgets_values: ["emoji"] },
      { ...lora, inputs: [{ name: "model", type: "MODEL" }, { name: "clip", type: "CLIP" }] }, // prettier-ignore
      { id: 6, type: "CLIPTextEncode", widgets_values: ["x"], inputs: [{ name: "clip", type: "CLIP" }] },
    ],
    links: [
      [1, 4, 0, 12, 0, "MODEL"],
      [2, 4, 1, 12, 1, "CLIP"],
      [3, 12, 1, 6, 0, "CLIP"],
    ],
  };
  const prompt = writeApi(CATALOGUE, readEditor(CATALOGUE, file));
  expect(Object.keys(prompt)).toEqual(["4", "6"]);
  expect(prompt["6"]?.inputs.clip).toEqual(["4", 1]);
});

test("reroutes and primitives leave only what they carry", () => {
  const file = {
    nodes: [
      { id: 4, type: "CheckpointLoaderSimple", widgets_values: ["emoji"] },
      { id: 5, type: "Reroute", inputs: [{ name: "", type: "*" }], outputs: [{ name: "", type: "CLIP" }] },
      {
        id: 6,
        type: "PrimitiveNode",
        outputs: [{ name: "STRING", type: "STRING" }],
        widgets_values: ["a tree"],
      },
      { id: 7, type: "Note", widgets_values: ["remember"] },
      {
        id: 8,
        type: "CLIPTextEncode",
        widgets_values: ["old"],
        inputs: [
          { name: "clip", type: "CLIP" },
          { name: "text", type: "STRING", widget: { name: "text" } },
        ],
      },
    ],
    links: [
      { id: 1, origin_id: 4, origin_slot: 1, target_id: 5, target_slot: 0, type: "*" },
      { id: 2, origin_id: 5, origin_slot: 0, target_id: 8, target_slot: 0, type: "CLIP" },
      { id: 3, origin_id: 6, origin_slot: 0, target_id: 8, target_slot: 1, type: "STRING" },
    ],
  };
  const document = readEditor(CATALOGUE, file);
  const prompt = writeApi(CATALOGUE, document);
  expect(Object.keys(prompt)).toEqual(["4", "8"]);
  expect(prompt["8"]?.inputs).toEqual({ clip: ["4", 1], text: "a tree" });
  const again = writeEditor(CATALOGUE, document);
  expect(again.links).toEqual(file.links);
  expect(nodeOf(again, 7).widgets_values).toEqual(["remember"]);
});

test("kinds of node that nobody knows keep their sockets and values", () => {
  const file = {
    nodes: [
      { id: 1, type: "Strange", widgets_values: [1, "x"], outputs: [{ name: "out", type: "STRANGE" }] },
      {
        id: 2,
        type: "Stranger",
        inputs: [
          { name: "in", type: "STRANGE", link: 1, shape: 7 },
          { name: "size", type: "INT", link: 2, widget: { name: "size" } },
        ],
      },
    ],
    links: [
      [1, 1, 0, 2, 0, "STRANGE"],
      [2, 1, 0, 2, 1, "STRANGE"],
    ],
  };
  const written = writeEditor(CATALOGUE, readEditor(CATALOGUE, file));
  expect(written.links).toEqual(file.links);
  expect(nodeOf(written, 1)).toMatchObject({
    widgets_values: [1, "x"],
    outputs: [{ name: "out", links: [1, 2] }],
  });
  expect(nodeOf(written, 2)).toMatchObject({ inputs: file.nodes[1]?.inputs });
  const api = readApi(CATALOGUE, { "1": { class_type: "Strange", inputs: { a: 1 } }, b: { class_type: "Odd", inputs: { in: ["1", 2] } } }); // prettier-ignore
  expect(api.links).toHaveLength(1);
  expect(writeApi(CATALOGUE, api)).toMatchObject({
    "1": { inputs: { a: 1 } },
    b: { inputs: { in: ["1", 2] } },
  });
});

test("a picture opens as the editor left it, or laid out anew when it only says what ran", () => {
  const [prompt, workflow] = [stringify(API_FILE), stringify(EDITOR_FILE)];
  expect(openCarried(CATALOGUE, { prompt, workflow })).toMatchObject({ groups: [{ title: "Words" }] });
  const bare = openCarried(CATALOGUE, { prompt, workflow: null });
  expect(writeApi(CATALOGUE, bare)).toEqual(API_FILE);
  for (const link of bare.links) {
    const [from, to] = [bare.nodes.get(link.from), bare.nodes.get(link.to)];
    expect(from?.position.x).toBeLessThan(to?.position.x ?? 0);
  }
});

test("what holds no graph says what it is", () => {
  const why = (open: () => unknown) => {
    try {
      open();
    } catch (error) {
      return error instanceof NoGraphError ? error.why : error;
    }
    return "opened";
  };
  expect(why(() => openCarried(CATALOGUE, {}))).toBe("picture");
  expect(why(() => openText(CATALOGUE, "hello"))).toBe("text");
  expect(why(() => openText(CATALOGUE, "[1]"))).toBe("json");
  expect(why(() => openJson(CATALOGUE, { prompt: API_FILE }))).toBe("opened");
});
