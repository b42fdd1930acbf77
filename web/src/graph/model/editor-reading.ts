/**
 * Reads the format that editors keep: places, titles, groups, and a node's values as a bare list in the order of its
 * widgets. What a file says and this editor does not know is carried along and written back. The subgraphs that a
 * file defines are read by `subgraph-reading`. Knows nothing of the screen.
 */
import { withinDeclarations } from "./api-format";
import type { Catalogue } from "./catalogue";
import {
  BLANK_NODE,
  declarationOf,
  newNode,
  NO_SUBGRAPHS,
  type Control,
  type GraphDocument,
  type GraphNode,
  type Group,
  type Link,
  type Mode,
  type Point,
  type Size,
  type SocketDeclaration,
} from "./document";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";
import { isControl, readWidgets } from "./widget-values";

const MODES: Readonly<Record<number, Mode>> = { 0: "active", 2: "muted", 4: "bypassed" };
/** Files measure a node below its title, this editor from the top of it. */
export const TITLE_HEIGHT = 30;

export function isEditorFormat(json: Json): json is JsonObject {
  return isObject(json) && isList(json.nodes) && json.nodes.every(isObject);
}

/** One level of nodes, with kinds for whatever its nodes stand for. */
export function readLevel(catalogue: Catalogue, file: JsonObject): GraphDocument {
  const { nodes: written, links: writtenLinks, ...rest } = file;
  const nodeList = objects(written);
  const nodes = new Map(nodeList.map((node) => [asText(node.id), readNode(catalogue, node)]));
  const inputNames = new Map(nodeList.map((node) => [asText(node.id), objects(node.inputs).map(nameOf)]));
  const filedLinks = isList(writtenLinks) ? writtenLinks : [];
  const read = filedLinks.map((link) => readLink(link, inputNames)).filter((link) => link !== null);
  const links = withinDeclarations(catalogue, nodes, read);
  const drawn = new Set(links.map((link) => link.filed));
  return {
    name: "",
    nodes,
    links,
    filedLinks: {
      all: filedLinks,
      undrawn: filedLinks.flatMap((link, at) => {
        const { id, from, to } = linkFields(link);
        return drawn.has(link) ? [] : [{ at, id, ends: [from, to].filter((end) => nodes.has(end)), link }];
      }),
    },
    groups: objects(rest.groups).map(readGroup),
    subgraphs: NO_SUBGRAPHS,
    rest,
  };
}

function readNode(catalogue: Catalogue, written: JsonObject): GraphNode {
  const { id, type, title, inputs, outputs } = written;
  const typeName = asText(type);
  const declaration = catalogue.get(typeName);
  const blank = declaration ? newNode(declaration, "", BLANK_NODE.position) : BLANK_NODE;
  // Of a kind that nobody knows every socket is drawn, so that no link is lost.
  const sockets = objects(inputs).filter((input) => !input.widget || !declaration);
  const node: GraphNode = {
    ...blank,
    id: asText(id),
    type: typeName,
    title: asText(title) === (declaration?.title ?? typeName) ? null : asText(title) || null,
    position: readPoint(written.pos),
    size: readSize(written.size),
    collapsed: readCollapsed(written.flags),
    mode: readMode(written.mode),
    filed: { inputs: sockets.map(readSlot), outputs: objects(outputs).map(readSlot) },
    rest: written,
  };
  if (!declaration) return node;
  const control = isList(written.widgets_values) ? written.widgets_values[1] : undefined;
  // A primitive has the widget of what it feeds; its list says whether that is a seed.
  const noted: Record<string, Control> =
    declaration.virtual === "primitive" && isControl(control) ? { value: control } : {};
  const { values, controls } = readWidgets(declarationOf(catalogue, { ...node, controls: noted }), written);
  return {
    ...node,
    values: { ...node.values, ...values },
    controls: { ...node.controls, ...noted, ...controls },
  };
}

export function readCollapsed(flags: Json | undefined): boolean {
  return isObject(flags) && flags.collapsed === true;
}

export function readMode(mode: Json | undefined): Mode {
  return MODES[Number(mode)] ?? "active";
}

export interface LinkFields {
  readonly id: number;
  readonly from: string;
  readonly output: number;
  readonly to: string;
  readonly slot: number;
}

/** What a link says, which files write as an object or as a list. */
export function linkFields(written: Json): LinkFields {
  const fields = isObject(written)
    ? [written.id, written.origin_id, written.origin_slot, written.target_id, written.target_slot]
    : isList(written)
      ? written
      : [];
  const [id, from, output, to, slot] = fields;
  return {
    ...{ id: Number(id), from: asText(from), output: Number(output) },
    ...{ to: asText(to), slot: Number(slot) },
  };
}

function readLink(written: Json, inputNames: ReadonlyMap<string, readonly string[]>): Link | null {
  const { slot, ...ends } = linkFields(written);
  const input = inputNames.get(ends.to)?.[slot];
  return input === undefined ? null : { ...ends, input, filed: written };
}

export function readGroup(written: JsonObject, index: number): Group {
  const { title, bounding, color } = written;
  const [x = 0, y = 0, width = 200, height = 100] = isList(bounding) ? bounding.map(Number) : [];
  return {
    id: `group-${index + 1}`,
    title: typeof title === "string" ? title : "",
    color: typeof color === "string" ? color : null,
    rest: written,
    ...{ x, y, width, height },
  };
}

export function objects(value: Json | undefined): JsonObject[] {
  return isList(value) ? value.filter(isObject) : [];
}

export function nameOf(slot: JsonObject): string {
  const widget = isObject(slot.widget) ? slot.widget.name : undefined;
  return asText(widget ?? slot.name);
}

export function readSlot(slot: JsonObject): SocketDeclaration {
  return {
    name: nameOf(slot),
    type: isList(slot.type) ? "COMBO" : asText(slot.type ?? "*"),
    ...(slot.widget ? { hasWidget: true } : {}),
  };
}

/** Places and sizes are lists, or objects with the keys "0" and "1" in older files. */
function pair(value: Json | undefined): [number, number] | null {
  const at = isObject(value) ? [value["0"], value["1"]] : isList(value) ? value : [];
  const [first = NaN, second = NaN] = at.map(Number);
  return Number.isFinite(first) && Number.isFinite(second) ? [first, second] : null;
}

export function readPoint(value: Json | undefined): Point {
  const [x, y] = pair(value) ?? [0, TITLE_HEIGHT];
  return { x, y: y - TITLE_HEIGHT };
}

export function readSize(value: Json | undefined): Size | null {
  const found = pair(value);
  return found && { width: found[0], height: found[1] + TITLE_HEIGHT };
}
