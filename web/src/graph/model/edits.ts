/**
 * Everything that can be done to a graph, one pure function per edit. An edit that changes nothing returns the very
 * document it was given. Knows nothing of undo, files or the screen.
 */
import { INPUT_EDGE, OUTPUT_EDGE, type Catalogue, type NodeDeclaration } from "./catalogue";
import {
  declarationOf,
  freshLinkId,
  freshNodeId,
  newNode,
  type Box,
  type Control,
  type GraphDocument,
  type GraphNode,
  type Group,
  type Link,
  type Mode,
  type Point,
  type Size,
} from "./document";
import type { Json } from "./json";
import { accepts, outputType, refusal, type Ends } from "./typing";

export function addNode(
  document: GraphDocument,
  declaration: NodeDeclaration,
  position: Point,
): GraphDocument {
  const node = newNode(declaration, freshNodeId(document), position);
  return { ...document, nodes: new Map(document.nodes).set(node.id, node) };
}

export function changeNode(document: GraphDocument, id: string, change: Partial<GraphNode>): GraphDocument {
  const node = document.nodes.get(id);
  if (!node) return document;
  return { ...document, nodes: new Map(document.nodes).set(id, { ...node, ...change }) };
}

export function setValue(document: GraphDocument, id: string, input: string, value: Json): GraphDocument {
  const node = document.nodes.get(id);
  if (!node || Object.is(node.values[input], value)) return document;
  return changeNode(document, id, { values: { ...node.values, [input]: value } });
}

export function setControl(
  document: GraphDocument,
  id: string,
  input: string,
  control: Control,
): GraphDocument {
  const node = document.nodes.get(id);
  if (!node || node.controls[input] === control) return document;
  return changeNode(document, id, { controls: { ...node.controls, [input]: control } });
}

/** Sets the mode of all nodes, or back to active when all of them have it already. */
export function toggleMode(document: GraphDocument, ids: readonly string[], mode: Mode): GraphDocument {
  const all = ids.every((id) => document.nodes.get(id)?.mode === mode);
  return ids.reduce((now, id) => changeNode(now, id, { mode: all ? "active" : mode }), document);
}

export function toggleCollapsed(document: GraphDocument, ids: readonly string[]): GraphDocument {
  const all = ids.every((id) => document.nodes.get(id)?.collapsed);
  return ids.reduce((now, id) => changeNode(now, id, { collapsed: !all }), document);
}

export function moveNodes(document: GraphDocument, places: ReadonlyMap<string, Point>): GraphDocument {
  let nodes: Map<string, GraphNode> | null = null;
  for (const [id, position] of places) {
    const node = document.nodes.get(id);
    if (!node || (node.position.x === position.x && node.position.y === position.y)) continue;
    nodes ??= new Map(document.nodes);
    nodes.set(id, { ...node, position });
  }
  return nodes ? { ...document, nodes } : document;
}

export function removeNodes(document: GraphDocument, ids: Iterable<string>): GraphDocument {
  const gone = new Set(ids);
  for (const edge of [INPUT_EDGE, OUTPUT_EDGE]) gone.delete(edge);
  const nodes = new Map([...document.nodes].filter(([id]) => !gone.has(id)));
  const groups = document.groups.filter((group) => !gone.has(group.id));
  if (nodes.size === document.nodes.size && groups.length === document.groups.length) return document;
  const links = document.links.filter((link) => !gone.has(link.from) && !gone.has(link.to));
  return { ...document, nodes, links, groups };
}

/** Joins two sockets where that is allowed; an input holds one link, so the new one replaces the old. */
export function connect(catalogue: Catalogue, document: GraphDocument, ends: Ends): GraphDocument {
  if (refusal(catalogue, document, ends)) return document;
  const others = document.links.filter((link) => link.to !== ends.to || link.input !== ends.input);
  const link: Link = { id: freshLinkId(document), ...ends };
  return afterReroutes(catalogue, { ...document, links: [...others, link] });
}

export function disconnect(document: GraphDocument, ids: Iterable<number>): GraphDocument {
  const gone = new Set(ids);
  const links = document.links.filter((link) => !gone.has(link.id));
  return links.length === document.links.length ? document : { ...document, links };
}

/** A reroute that is fed something else may no longer suit what it feeds: those links go. */
function afterReroutes(catalogue: Catalogue, document: GraphDocument): GraphDocument {
  const links = document.links.filter((link) => {
    const [source, target] = [document.nodes.get(link.from), document.nodes.get(link.to)];
    if (!source || !target || catalogue.get(source.type)?.virtual !== "reroute") return true;
    const wanted =
      declarationOf(catalogue, target).inputs.find((input) => input.name === link.input)?.type ?? "*";
    return accepts(wanted, outputType(catalogue, document, link.from, link.output));
  });
  return links.length === document.links.length ? document : { ...document, links };
}

export function addGroup(document: GraphDocument, title: string, box: Box): GraphDocument {
  const taken = new Set(document.groups.map((group) => group.id));
  let number = document.groups.length + 1;
  while (taken.has(`group-${number}`)) number += 1;
  const group: Group = { id: `group-${number}`, title, color: null, rest: {}, ...box };
  return { ...document, groups: [...document.groups, group] };
}

export function changeGroup(document: GraphDocument, id: string, change: Partial<Group>): GraphDocument {
  const groups = document.groups.map((group) => (group.id === id ? { ...group, ...change } : group));
  return { ...document, groups };
}

const GROUP_MARGIN = 24;
const GROUP_TITLE = 40;

/** The box around some nodes, with room for the group's title. */
export function boxAround(
  document: GraphDocument,
  ids: readonly string[],
  sizes: ReadonlyMap<string, Size>,
): Box | null {
  const boxes = ids.flatMap((id): Box[] => {
    const node = document.nodes.get(id);
    return node ? [{ ...node.position, ...(sizes.get(id) ?? node.size ?? { width: 240, height: 120 }) }] : [];
  });
  if (boxes.length === 0) return null;
  const left = Math.min(...boxes.map((box) => box.x)) - GROUP_MARGIN;
  const top = Math.min(...boxes.map((box) => box.y)) - GROUP_MARGIN - GROUP_TITLE;
  const right = Math.max(...boxes.map((box) => box.x + box.width)) + GROUP_MARGIN;
  const bottom = Math.max(...boxes.map((box) => box.y + box.height)) + GROUP_MARGIN;
  return { x: left, y: top, width: right - left, height: bottom - top };
}

/** What seeds become once a run has been asked for. `random` gives a number in [0, 1). */
export function afterRun(catalogue: Catalogue, document: GraphDocument, random: () => number): GraphDocument {
  let changed = document;
  for (const one of document.subgraphs.values()) {
    const inside = afterRun(catalogue, one.inside, random);
    if (inside === one.inside) continue;
    changed = { ...changed, subgraphs: new Map(changed.subgraphs).set(one.id, { ...one, inside }) };
  }
  for (const node of document.nodes.values()) {
    for (const [input, control] of Object.entries(node.controls)) {
      const declared = declarationOf(catalogue, node).inputs.find((one) => one.name === input);
      const value = nextSeed(node.values[input] ?? 0, control, declared?.maximum ?? null, random);
      changed = setValue(changed, node.id, input, value);
    }
  }
  return changed;
}

// Numbers drawn stay below 2^50, so that every client, JavaScript or not, keeps all their digits.
const DRAWN_SEEDS = 2 ** 50;

export function nextSeed(value: Json, control: Control, maximum: number | null, random: () => number): Json {
  if (control === "fixed" || (typeof value !== "number" && typeof value !== "bigint")) return value;
  if (control === "randomize") return Math.floor(random() * Math.min(DRAWN_SEEDS, maximum ?? DRAWN_SEEDS));
  const next = BigInt(value) + (control === "increment" ? 1n : -1n);
  if (next < 0n || (maximum !== null && next > BigInt(maximum))) return value;
  return next <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(next) : next;
}
