/**
 * Subgraphs: what their nodes look like from outside, and the way to what is inside. A path is the ids of the nodes
 * entered one after the other; the ids of a run are a path and a node with colons between. Knows nothing of files.
 */
import { stringify } from "../../api/json";
import {
  INPUT_EDGE,
  socket,
  virtualNode,
  widgetInput,
  type Catalogue,
  type InputDeclaration,
  type NodeDeclaration,
} from "./catalogue";
import { declarationOf, NO_SUBGRAPHS, type GraphDocument, type GraphNode, type Subgraph } from "./document";

/** Subgraphs further in than this are taken to hold themselves; the server draws the line at the same place. */
export const DEEPEST = 16;

export type Path = readonly string[];

/** The kinds of node there are in a graph: the server's, and one for each of its subgraphs. */
export function withSubgraphs(kinds: Catalogue, subgraphs: GraphDocument["subgraphs"]): Catalogue {
  if (subgraphs.size === 0) return kinds;
  const declared = [...subgraphs.values()].map((one): [string, NodeDeclaration] => [
    one.id,
    declaration(kinds, subgraphs, one),
  ]);
  return new Map([...kinds, ...declared]);
}

function declaration(
  kinds: Catalogue,
  subgraphs: GraphDocument["subgraphs"],
  one: Subgraph,
): NodeDeclaration {
  return virtualNode(one.id, one.inside.name || "Subgraph", "subgraph", {
    category: "subgraph",
    inputs: one.inputs.map((input, slot) => ({
      ...(widgetBehind(kinds, subgraphs, one, slot, DEEPEST) ?? socket(input.name, input.type)),
      name: input.name,
      optional: true,
      // What becomes of a seed after a run is kept on the node inside.
      seed: false,
    })),
    outputs: one.outputs,
  });
}

/** The widget inside that an input of a subgraph stands for; null where it only takes a link. */
function widgetBehind(
  kinds: Catalogue,
  subgraphs: GraphDocument["subgraphs"],
  { inside }: Subgraph,
  slot: number,
  depth: number,
): InputDeclaration | null {
  const link = inside.links.find((one) => one.from === INPUT_EDGE && one.output === slot);
  const node = link && inside.nodes.get(link.to);
  if (!node) return null;
  const deeper = subgraphs.get(node.type);
  const found = deeper
    ? widgetBehindNested(kinds, subgraphs, deeper, link.input, depth)
    : kinds.has(node.type)
      ? declarationOf(kinds, node).inputs.find((input) => input.name === link.input)
      : widgetOfUnknown(node, link.input);
  if (!found?.widget) return null;
  return { ...found, initial: node.values[link.input] ?? found.initial };
}

function widgetBehindNested(
  kinds: Catalogue,
  subgraphs: GraphDocument["subgraphs"],
  one: Subgraph,
  name: string,
  depth: number,
): InputDeclaration | null {
  const slot = one.inputs.findIndex((input) => input.name === name);
  return depth > 0 && slot >= 0 ? widgetBehind(kinds, subgraphs, one, slot, depth - 1) : null;
}

/** The widget of a node of unknown kind, as far as its file tells: without it the values of others would move up. */
function widgetOfUnknown({ filed }: GraphNode, name: string): InputDeclaration | null {
  const found = filed.inputs.find((input) => input.name === name);
  if (!found?.hasWidget) return null;
  const input = widgetInput(name, found.type, null);
  // Its choices are not known.
  return input.widget === "choice" ? { ...input, widget: "text" } : input;
}

/** Whether two catalogues draw subgraphs alike, so that nothing has to be drawn again. */
export function sameKinds(one: Catalogue, other: Catalogue, subgraphs: GraphDocument["subgraphs"]): boolean {
  return (
    one.size === other.size &&
    [...subgraphs.keys()].every((id) => stringify(one.get(id) as never) === stringify(other.get(id) as never))
  );
}

/** As much of a path as leads somewhere. */
export function passable(whole: GraphDocument, path: Path): Path {
  let level = whole;
  for (const [depth, id] of path.entries()) {
    const next = whole.subgraphs.get(level.nodes.get(id)?.type ?? "");
    if (!next) return path.slice(0, depth);
    level = next.inside;
  }
  return path;
}

export function levelAt(whole: GraphDocument, path: Path): GraphDocument {
  return path.length === 0 ? whole : (subgraphAt(whole, path)?.inside ?? whole);
}

function subgraphAt(whole: GraphDocument, path: Path): Subgraph | undefined {
  const node = levelAt(whole, path.slice(0, -1)).nodes.get(path.at(-1) ?? "");
  return node && whole.subgraphs.get(node.type);
}

/** The whole with another level at the end of a path; subgraphs that came with the level belong to the whole. */
export function withLevel(whole: GraphDocument, path: Path, level: GraphDocument): GraphDocument {
  if (path.length === 0) return level;
  const held = subgraphAt(whole, path);
  if (!held || held.inside === level) return whole;
  const subgraphs = new Map([...level.subgraphs, ...whole.subgraphs]);
  return {
    ...whole,
    subgraphs: subgraphs.set(held.id, { ...held, inside: { ...level, subgraphs: NO_SUBGRAPHS } }),
  };
}

/** The id by which a run knows a node of the level at the end of a path. */
export function runId(path: Path, id: string): string {
  return [...path, id].join(":");
}

export function splitRunId(id: string): { path: Path; node: string } {
  const parts = id.split(":");
  return { path: parts.slice(0, -1), node: parts.at(-1) ?? "" };
}

/** A node by the id that a run knows it by. */
export function nodeInRun(whole: GraphDocument, id: string): GraphNode | undefined {
  // Ids of graphs that were unpacked before they came here have colons of their own.
  const direct = whole.nodes.get(id);
  if (direct) return direct;
  const { path, node } = splitRunId(id);
  return passable(whole, path).length === path.length ? levelAt(whole, path).nodes.get(node) : undefined;
}

/** The subgraphs that some nodes stand for, and those inside these. */
export function subgraphsUsed(
  nodes: Iterable<GraphNode>,
  all: GraphDocument["subgraphs"],
): Map<string, Subgraph> {
  const used = new Map<string, Subgraph>();
  const waiting = [...nodes];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    const one = all.get(node.type);
    if (!one || used.has(one.id)) continue;
    used.set(one.id, one);
    waiting.push(...one.inside.nodes.values());
  }
  return used;
}
