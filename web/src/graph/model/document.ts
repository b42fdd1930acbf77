/**
 * A graph as it is edited: nodes with values, links between them, groups around them. Everything is immutable; a
 * change makes a new document that shares what stayed the same, so that a comparison by identity finds what changed.
 * Knows nothing of files, of the server or of the screen.
 */
import type { Catalogue, InputDeclaration, NodeDeclaration, OutputDeclaration } from "./catalogue";
import { socket, widgetInput } from "./catalogue";
import type { Json, JsonObject } from "./json";

export const CONTROLS = ["fixed", "increment", "decrement", "randomize"] as const;
export type Control = (typeof CONTROLS)[number];
export type Mode = "active" | "muted" | "bypassed";

export interface Point {
  readonly x: number;
  readonly y: number;
}
export interface Size {
  readonly width: number;
  readonly height: number;
}
export interface Box extends Point, Size {}

export interface GraphNode {
  readonly id: string;
  readonly type: string;
  /** What the user called it; null shows the declared title. */
  readonly title: string | null;
  readonly position: Point;
  readonly size: Size | null;
  readonly collapsed: boolean;
  readonly mode: Mode;
  readonly values: Readonly<Record<string, Json>>;
  /** What seeds do after a run, by input. */
  readonly controls: Readonly<Record<string, Control>>;
  /** Sockets as a file had them: what is drawn for kinds of node that this server does not know. */
  readonly filed: {
    readonly inputs: readonly SocketDeclaration[];
    readonly outputs: readonly OutputDeclaration[];
  };
  /** The node's JSON in the file it came from: what has not changed is written back as it was read. */
  readonly rest: JsonObject;
}

/** A socket as a file describes it. */
export interface SocketDeclaration extends OutputDeclaration {
  /** The input also has a widget. */
  readonly hasWidget?: boolean;
}

export interface Link {
  readonly id: number;
  readonly from: string;
  readonly output: number;
  readonly to: string;
  readonly input: string;
  /** The link's JSON in the file it came from. */
  readonly filed?: Json;
}

export interface FiledLinks {
  readonly all: readonly Json[];
  /** Written back as they were read, as long as the nodes at their ends exist. */
  readonly undrawn: readonly UndrawnLink[];
}

/** A link of a file that cannot be drawn: its place among the file's links, and its JSON. */
export interface UndrawnLink {
  readonly at: number;
  readonly id: number;
  /** The nodes at its ends that the file has. */
  readonly ends: readonly string[];
  readonly link: Json;
}

export interface Group extends Box {
  readonly id: string;
  readonly title: string;
  readonly color: string | null;
  /** The group's JSON in the file it came from. */
  readonly rest: JsonObject;
}

export interface GraphDocument {
  readonly name: string;
  readonly nodes: ReadonlyMap<string, GraphNode>;
  readonly links: readonly Link[];
  /** The links of the file that it came from. */
  readonly filedLinks?: FiledLinks;
  readonly groups: readonly Group[];
  /** By id, which is the kind of the nodes that stand for one; all of them at the top, none further in. */
  readonly subgraphs: ReadonlyMap<string, Subgraph>;
  readonly rest: JsonObject;
}

/** A graph that nodes of another stand for. Its name is the name of what is inside. */
export interface Subgraph {
  readonly id: string;
  /** With a node for its inputs and one for its outputs. */
  readonly inside: GraphDocument;
  readonly inputs: readonly OutputDeclaration[];
  readonly outputs: readonly OutputDeclaration[];
}

export const NO_SUBGRAPHS: ReadonlyMap<string, Subgraph> = new Map();

export const EMPTY_DOCUMENT: GraphDocument = {
  name: "",
  nodes: new Map(),
  links: [],
  groups: [],
  subgraphs: NO_SUBGRAPHS,
  rest: {},
};

export const BLANK_NODE: GraphNode = {
  id: "",
  type: "",
  title: null,
  position: { x: 0, y: 0 },
  size: null,
  collapsed: false,
  mode: "active",
  values: {},
  controls: {},
  filed: { inputs: [], outputs: [] },
  rest: {},
};

export function newNode(declaration: NodeDeclaration, id: string, position: Point): GraphNode {
  const entered = declaration.inputs.filter((input) => input.widget !== null);
  return {
    ...BLANK_NODE,
    id,
    type: declaration.type,
    position,
    values: Object.fromEntries(entered.map((input) => [input.name, input.initial])),
    controls: Object.fromEntries(
      entered.filter((input) => input.seed).map((input) => [input.name, "randomize"]),
    ),
  };
}

/** What a node looks like: as the server declares it, or as far as the file it came from tells. */
export function declarationOf(catalogue: Catalogue, node: GraphNode): NodeDeclaration {
  const known = catalogue.get(node.type);
  if (known?.virtual === "primitive") return primitiveDeclaration(known, node);
  if (known && known.virtual !== "edge") return known;
  return {
    type: node.type,
    title: node.type,
    category: "",
    help: "",
    isOutput: false,
    virtual: null,
    ...known,
    inputs: node.filed.inputs.map((input) => socket(input.name, input.type, true)),
    outputs: node.filed.outputs,
  };
}

function primitiveDeclaration(known: NodeDeclaration, node: GraphNode): NodeDeclaration {
  const type = node.filed.outputs[0]?.type ?? "*";
  const input: InputDeclaration = { ...widgetInput("value", type, null), seed: "value" in node.controls };
  return {
    ...known,
    inputs: [input],
    outputs: node.filed.outputs.length ? node.filed.outputs : known.outputs,
  };
}

export function isKnown(catalogue: Catalogue, node: GraphNode): boolean {
  return catalogue.has(node.type);
}

export function titleOf(catalogue: Catalogue, node: GraphNode): string {
  return node.title ?? declarationOf(catalogue, node).title;
}

export function linkInto(document: GraphDocument, node: string, input: string): Link | undefined {
  return document.links.find((link) => link.to === node && link.input === input);
}

export function freshNodeId(document: GraphDocument): string {
  let highest = 0;
  for (const id of document.nodes.keys()) if (/^\d+$/.test(id)) highest = Math.max(highest, Number(id));
  return String(highest + 1);
}

export function freshLinkId(document: GraphDocument): number {
  const { links, filedLinks } = document;
  const ids = [...links.map((link) => link.id), ...(filedLinks?.undrawn ?? []).map((link) => link.id)];
  return ids.filter(Number.isFinite).reduce((highest, id) => Math.max(highest, id), 0) + 1;
}

export function nodesInside(document: GraphDocument, box: Box, sizes: ReadonlyMap<string, Size>): string[] {
  const inside = [...document.nodes.values()].filter((node) => {
    const size = sizes.get(node.id) ?? node.size ?? { width: 0, height: 0 };
    const [x, y] = [node.position.x + size.width / 2, node.position.y + size.height / 2];
    return x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
  });
  return inside.map((node) => node.id);
}
