/**
 * Reads the format that editors keep: places, titles, groups, and a node's values as a bare list in the order of its
 * widgets. What a file says and this editor does not know is carried along and written back. The subgraphs that a
 * file defines are read by `subgraph-reading`. Knows nothing of the screen.
 */
import { withinDeclarations } from "./api-format";
import type { Catalogue, InputDeclaration, OutputDeclaration } from "./catalogue";
import {
  BLANK_NODE,
  CONTROLS,
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
} from "./document";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";

const MODES: Readonly<Record<number, Mode>> = { 0: "active", 2: "muted", 4: "bypassed" };
/** What the upload button of a picture list leaves in the list of values. */
export const UPLOAD_MARK = "image";
/** Files measure a node below its title, this editor from the top of it. */
export const TITLE_HEIGHT = 30;

export function isEditorFormat(json: Json): json is JsonObject {
  return isObject(json) && isList(json.nodes) && json.nodes.every(isObject);
}

/** One level of nodes, with kinds for whatever its nodes stand for. */
export function readLevel(catalogue: Catalogue, file: JsonObject): GraphDocument {
  const { nodes: written, links: writtenLinks, groups, ...rest } = file;
  const nodeList = objects(written);
  const nodes = new Map(nodeList.map((node) => [asText(node.id), readNode(catalogue, node)]));
  const inputNames = new Map(nodeList.map((node) => [asText(node.id), objects(node.inputs).map(nameOf)]));
  const links = (isList(writtenLinks) ? writtenLinks : []).flatMap((link) => readLink(link, inputNames));
  return {
    name: "",
    nodes,
    links: withinDeclarations(catalogue, nodes, links),
    groups: objects(groups).map(readGroup),
    subgraphs: NO_SUBGRAPHS,
    rest,
  };
}

function readNode(catalogue: Catalogue, written: JsonObject): GraphNode {
  const {
    id,
    type,
    pos,
    size,
    flags = {},
    mode,
    inputs,
    outputs,
    title,
    widgets_values: listed,
    ...rest
  } = written;
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
    position: readPoint(pos),
    size: readSize(size),
    collapsed: isObject(flags) && flags.collapsed === true,
    mode: MODES[Number(mode)] ?? "active",
    filed: { inputs: sockets.map(readSlot), outputs: objects(outputs).map(readSlot) },
    rest: { ...rest, flags, inputs, outputs },
  };
  if (!declaration) return { ...node, rest: { ...node.rest, listed } };
  if (declaration.virtual === "primitive") return withPrimitiveValue(node, listed);
  if (declaration.virtual === "subgraph") return withOwnValues(node, declaration.inputs, listed);
  return withValues(node, declaration.inputs, listed);
}

function withPrimitiveValue(node: GraphNode, listed: Json | undefined): GraphNode {
  const [value, control] = isList(listed) ? listed : [];
  const controls: Record<string, Control> = isControl(control) ? { value: control } : {};
  return { ...node, values: { value: value ?? null }, controls };
}

/** A subgraph's node lists the values of its own widgets among those of nodes inside, and has notes of which is which. */
function withOwnValues(
  node: GraphNode,
  inputs: readonly InputDeclaration[],
  listed: Json | undefined,
): GraphNode {
  const kept = isList(listed) ? listed : [];
  const values: Record<string, Json> = { ...node.values };
  for (const [place, [holder, name]] of shownWidgets(node, inputs).entries()) {
    const value = kept[place];
    if (holder === OWN_WIDGET && value !== undefined && value !== null) values[name] = value;
  }
  return { ...node, values, rest: { ...node.rest, listed: kept } };
}

/** In place of a node inside: the subgraph's own input. */
export const OWN_WIDGET = "-1";

/** The widgets that a subgraph's node shows: a node inside, or itself, and the widget's name. */
export function shownWidgets(node: GraphNode, inputs: readonly InputDeclaration[]): [string, string][] {
  const { properties } = node.rest;
  const noted = isObject(properties) ? properties.proxyWidgets : undefined;
  const own = inputs.filter((input) => input.widget !== null).map((input) => input.name);
  if (!isList(noted)) return own.map((name) => [OWN_WIDGET, name]);
  const known = noted.map((pair): [string, string] =>
    isList(pair) ? [asText(pair[0]), asText(pair[1])] : ["", ""],
  );
  const missing = own.filter((name) => !known.some(([holder, one]) => holder === OWN_WIDGET && one === name));
  return [...known, ...missing.map((name): [string, string] => [OWN_WIDGET, name])];
}

/** Deals the bare list out to the widgets in their order; some widgets leave a second entry behind. */
function withValues(
  node: GraphNode,
  inputs: readonly InputDeclaration[],
  listed: Json | undefined,
): GraphNode {
  if (isObject(listed)) return { ...node, values: { ...node.values, ...named(listed, inputs) } };
  const queue = isList(listed) ? [...listed] : [];
  const values: Record<string, Json> = { ...node.values };
  const controls: Record<string, Control> = { ...node.controls };
  const widgets = inputs.filter((input) => input.widget !== null);
  for (const [place, input] of widgets.entries()) {
    if (queue.length === 0) break;
    values[input.name] = queue.shift() ?? null;
    if (input.seed) controls[input.name] = takeControl(queue, widgets.length - place - 1);
    if (input.upload && queue[0] === UPLOAD_MARK) queue.shift();
  }
  return { ...node, values, controls };
}

/** Takes what happens to a seed after a run out of the queue, where it is there. */
function takeControl(queue: Json[], widgetsLeft: number): Control {
  const [next] = queue;
  // Very old files have a truth value in its place, so that there is one value too many.
  const spare = typeof next === "boolean" && queue.length > widgetsLeft;
  if (!spare && !isControl(next)) return "fixed";
  queue.shift();
  return isControl(next) ? next : next ? "randomize" : "fixed";
}

function named(listed: JsonObject, inputs: readonly InputDeclaration[]): Record<string, Json> {
  const known = inputs.flatMap((input): [string, Json][] => {
    const value = listed[input.name];
    return value === undefined ? [] : [[input.name, value]];
  });
  return Object.fromEntries(known);
}

function readLink(written: Json, inputNames: ReadonlyMap<string, readonly string[]>): Link[] {
  const fields = isObject(written)
    ? [written.id, written.origin_id, written.origin_slot, written.target_id, written.target_slot]
    : isList(written)
      ? written
      : [];
  const [id, from, output, to, slot] = fields;
  const input = inputNames.get(asText(to))?.[Number(slot)];
  if (input === undefined) return [];
  return [{ id: Number(id), from: asText(from), output: Number(output), to: asText(to), input }];
}

function readGroup(written: JsonObject, index: number): Group {
  const { title, bounding, color, ...rest } = written;
  const [x = 0, y = 0, width = 200, height = 100] = isList(bounding) ? bounding.map(Number) : [];
  return {
    id: `group-${index + 1}`,
    title: typeof title === "string" ? title : "",
    color: typeof color === "string" ? color : null,
    rest,
    ...{ x, y, width, height },
  };
}

export function objects(value: Json | undefined): JsonObject[] {
  return isList(value) ? value.filter(isObject) : [];
}

function nameOf(slot: JsonObject): string {
  const widget = isObject(slot.widget) ? slot.widget.name : undefined;
  return asText(widget ?? slot.name);
}

export function readSlot(slot: JsonObject): OutputDeclaration {
  return { name: nameOf(slot), type: isList(slot.type) ? "COMBO" : asText(slot.type ?? "*") };
}

function isControl(value: Json | undefined): value is Control {
  return CONTROLS.some((control) => control === value);
}

/** Places and sizes are lists, or objects with the keys "0" and "1" in older files. */
function pair(value: Json | undefined): [number, number] | null {
  const at = isObject(value) ? [value["0"], value["1"]] : isList(value) ? value : [];
  const [first = NaN, second = NaN] = at.map(Number);
  return Number.isFinite(first) && Number.isFinite(second) ? [first, second] : null;
}

function readPoint(value: Json | undefined): Point {
  const [x, y] = pair(value) ?? [0, TITLE_HEIGHT];
  return { x, y: y - TITLE_HEIGHT };
}

function readSize(value: Json | undefined): Size | null {
  const found = pair(value);
  return found && { width: found[0], height: found[1] + TITLE_HEIGHT };
}
