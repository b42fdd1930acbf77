/** Small workflows, written by hand, one for every shape that published workflows have. */
import type { Json, JsonObject } from "../model/json";

const INNER = "3f0c3d0a-6a0e-4c55-9a2b-8f3f5a1f7d21";

function node(id: number, type: string, more: JsonObject): JsonObject {
  const place = { pos: [10 * id, 20], size: [210, 80.5], flags: {}, order: id, mode: 0 };
  return { id, type, ...place, inputs: [], outputs: [], properties: {}, ...more };
}

function file(nodes: JsonObject[], more: JsonObject = {}): JsonObject {
  const numbers = { last_node_id: 90, last_link_id: 90 };
  return { id: "a-file", revision: 0, ...numbers, nodes, links: [], groups: [], config: {}, extra: {}, version: 0.4, ...more }; // prettier-ignore
}

const out = (name: string, type: string, ...links: number[]): JsonObject => ({ name, type, links });
const into = (name: string, type: string, link: number | null, more: JsonObject = {}): JsonObject => ({
  name,
  type,
  link,
  ...more,
});
const widget = (name: string): JsonObject => ({ widget: { name } });

/** The inputs of a subgraph: widgets of a kind of node that the server does not have, and one of a known kind. */
const SUBGRAPH: JsonObject = {
  id: INNER,
  version: 1,
  state: { lastGroupId: 0, lastNodeId: 7, lastLinkId: 5, lastRerouteId: 0 },
  revision: 0,
  config: {},
  name: "Inner",
  inputNode: { id: -10, bounding: [-300.1, 20.7, 120, 80] },
  outputNode: { id: -20, bounding: [700, 20.3, 120, 60] },
  inputs: [
    { id: "in-1", name: "caption", type: "STRING", linkIds: [1], pos: [0, 0] },
    { id: "in-2", name: "strength", type: "COMFY_STRENGTH_V3", linkIds: [2] },
    { id: "in-3", name: "seed", type: "INT", linkIds: [3] },
  ],
  outputs: [{ id: "out-1", name: "LATENT", type: "LATENT", linkIds: [4, 77], localized_name: "latent" }],
  widgets: [],
  nodes: [
    node(1, "UnknownCaptioner", {
      inputs: [
        into("image", "IMAGE", null),
        into("caption", "STRING", 1, widget("caption")),
        into("strength", "COMFY_STRENGTH_V3", 2, widget("strength")),
      ],
      outputs: [out("CONDITIONING", "CONDITIONING", 5)],
      widgets_values: ["inner words", { level: 2 }, null, "more"],
    }),
    node(2, "KSampler", {
      inputs: [
        into("positive", "CONDITIONING", 5),
        into("seed", "INT", 3, { ...widget("seed"), localized_name: "seed" }),
      ],
      outputs: [out("LATENT", "LATENT", 4)],
      widgets_values: [3, "randomize", 9, 4.5, "euler", "karras", 1],
    }),
  ],
  groups: [],
  links: [
    { id: 1, origin_id: -10, origin_slot: 0, target_id: 1, target_slot: 1, type: "STRING" },
    { id: 2, origin_id: -10, origin_slot: 1, target_id: 1, target_slot: 2, type: "COMFY_STRENGTH_V3" },
    { id: 3, origin_id: -10, origin_slot: 2, target_id: 2, target_slot: 1, type: "INT" },
    { id: 5, origin_id: 1, origin_slot: 0, target_id: 2, target_slot: 0, type: "CONDITIONING", parentId: 4 },
    { id: 4, origin_id: 2, origin_slot: 0, target_id: -20, target_slot: 0, type: "LATENT" },
  ],
  extra: { workflowRendererVersion: "LG" },
};

const INSTANCE_INPUTS = [
  into("caption", "STRING", null, widget("caption")),
  into("strength", "COMFY_STRENGTH_V3", null, widget("strength")),
  into("seed", "INT", null, widget("seed")),
];

function instance(more: JsonObject): JsonObject {
  return file([node(20, INNER, { inputs: INSTANCE_INPUTS, outputs: [out("LATENT", "LATENT")], ...more })], {
    definitions: { subgraphs: [SUBGRAPH, { name: "A definition without an id" }], other: true },
  });
}

const ENCODER_INPUTS = [into("clip", "CLIP", null), into("text", "STRING", 8, widget("text"))];

export const SHAPES: Readonly<Record<string, JsonObject>> = {
  "primitive nodes, with and without a seed's control and with a filter": file(
    [
      node(1, "PrimitiveNode", {
        outputs: [{ ...out("INT", "INT"), widget: { name: "seed" } }],
        title: "Seed",
        widgets_values: [123456789012345678n, "increment"],
      }),
      node(2, "PrimitiveNode", { outputs: [out("STRING", "STRING", 8)], widgets_values: ["a lake"] }),
      node(3, "PrimitiveNode", { outputs: [out("COMBO", "COMBO")], widgets_values: ["euler", "fixed", ""] }),
      node(4, "PrimitiveNode", { outputs: [{ name: "connect to widget input", type: "*", links: null }] }),
      node(5, "CLIPTextEncode", { inputs: ENCODER_INPUTS, widgets_values: ["before"] }),
    ],
    { links: [[8, 2, 0, 5, 1, "STRING"]] },
  ),
  "a subgraph without notes of its widgets": instance({ widgets_values: ["outer words", { level: 7 }, 99] }),
  "a subgraph with notes of its widgets": instance({
    properties: { proxyWidgets: [["2", "steps"], ["-1", "caption"], ["-1", "seed"]] }, // prettier-ignore
    widgets_values: [null, "outer words", 42],
  }),
  "a subgraph whose values are those of the nodes inside": instance({
    properties: { proxyWidgets: [["1", "caption"], ["2", "seed"]] }, // prettier-ignore
    widgets_values: [],
  }),
  "nodes of unknown kinds, widget inputs among their sockets": file(
    [
      node(1, "UnknownMaker", {
        outputs: [out("a", "X", 1), { ...out("b", "X"), links: null, slot_index: 1 }],
        widgets_values: [1.5, null, "x", true, [1, 2]],
        shape: 1,
      }),
      node(2, "UnknownTaker", {
        inputs: [into("x", "X", 1, { shape: 7 }), into("x", "X", null), into("n", "INT", null, widget("n"))],
        widgets_values: { n: 5, video: { params: { frames: 3 } } },
        properties: { "Node name for S&R": "UnknownTaker", cnr_id: "pack", ver: "1.0" },
      }),
    ],
    { links: [[1, 1, 0, 2, 0, "X"]] },
  ),
  "values by name, and values by name beside the list": file([
    node(1, "CLIPTextEncode", { widgets_values: { text: "by name", more: 1 } }),
    node(2, "CLIPTextEncode", { widgets_values: ["listed"], widgets_values_named: { text: "listed" } }),
  ]),
  "lists that are too short, too long, old, empty, null or missing": file([
    node(1, "KSampler", { widgets_values: [7, "fixed"] }),
    node(2, "KSampler", { widgets_values: [7, "fixed", 20, 8, "euler", "normal", 1, "extra", null] }),
    node(3, "KSampler", { widgets_values: [8566257, true, 20, 8, "euler", "normal", 0.5] }),
    node(4, "KSampler", { widgets_values: [8566257, 20, 8, "euler", "normal", 0.5] }),
    node(5, "KSampler", { widgets_values: [] }),
    node(6, "KSampler", { widgets_values: null }),
    node(7, "KSampler", {}),
    node(8, "CLIPTextEncode", { widgets_values: [null] }),
    node(9, "LoadImage", { widgets_values: ["cat.png", "image"] }),
    node(10, "LoadImage", { widgets_values: ["cat.png"] }),
    node(11, "EmptyLatentImage", { widgets_values: ["512", 768, 2] }),
  ]),
  "reroutes, notes and groups": file(
    [
      node(1, "CheckpointLoaderSimple", {
        outputs: [out("MODEL", "MODEL"), out("CLIP", "CLIP", 1)],
        widgets_values: ["emoji"],
      }),
      node(2, "Reroute", {
        inputs: [into("", "*", 1)],
        outputs: [out("CLIP", "CLIP", 2)],
        properties: { showOutputText: true, horizontal: false },
      }),
      node(3, "CLIPTextEncode", { inputs: [into("clip", "CLIP", 2)], widgets_values: ["words"] }),
      node(4, "Note", { widgets_values: ["remember"], color: "#432", bgcolor: "#653" }),
      node(5, "MarkdownNote", { widgets_values: ["# Title"], title: "Read me" }),
    ],
    {
      links: [
        [1, 1, 1, 2, 0, "*"],
        [2, 2, 0, 3, 0, "CLIP"],
      ],
      groups: [
        { id: 1, title: "Step 1", bounding: [0.25, 1, 300, 200], color: "#3f789e", font_size: 24, flags: {} },
        { title: "No color", bounding: [0, 0, 10, 10] },
      ],
      extra: { ds: { scale: 1, offset: [1, 2] }, reroutes: [{ id: 1 }], linkExtensions: [{ id: 2 }] },
      models: [{ name: "a.safetensors" }],
    },
  ),
  "muted and bypassed nodes, other modes, collapsed nodes and titles": file([
    node(1, "VAEDecode", { mode: 2, flags: { collapsed: true, pinned: true } }),
    node(2, "VAEDecode", { mode: 4, title: "VAE Decode" }),
    node(3, "VAEDecode", { mode: 1, title: "", flags: { collapsed: false } }),
    node(4, "VAEDecode", { size: { "0": 210, "1": 46 }, pos: { "0": 4, "1": 5 } }),
  ]),
  "links that cannot be drawn, named twice, or to nowhere": file(
    [
      node(1, "KSampler", { outputs: [out("LATENT", "LATENT", 1, 2, 50), out("NEW", "NEW", 3)] }),
      node(2, "VAEDecode", {
        inputs: [into("samples", "LATENT", 1), into("tile", "INT", 2), { name: "vae", type: "VAE" }],
      }),
      node(3, "VAEDecode", { inputs: [into("samples", "LATENT", 3)] }),
    ],
    {
      links: [
        [2, 1, 0, 2, 1, "LATENT"],
        [1, 1, 0, 2, 0, "LATENT"],
        [3, 1, 1, 3, 0, "NEW"],
        [4, 1, 0, 99, 0, "LATENT"],
        null,
      ],
    },
  ),
  "links as objects, and numbers that are too low": file(
    [
      node(1, "CheckpointLoaderSimple", { outputs: [out("MODEL", "MODEL"), out("CLIP", "CLIP", 5)] }),
      node(2, "CLIPTextEncode", { inputs: [into("clip", "CLIP", 5)], widgets_values: [""], order: 0 }),
    ],
    {
      links: [{ id: 5, origin_id: 1, origin_slot: 1, target_id: 2, target_slot: 0, type: "CLIP" }],
      last_node_id: 1,
      last_link_id: 1,
      floatingLinks: [{ id: 6 }],
    },
  ),
};

export function valuesOf(workflow: Json, id: number): Json | undefined {
  const { nodes } = workflow as { nodes: readonly JsonObject[] };
  return nodes.find((one) => one.id === id)?.widgets_values;
}
