/**
 * Writes the format that editors keep, see `editor-reading`. Knows nothing of the screen; sizes come from whoever
 * measured them.
 */
import { INPUT_EDGE, OUTPUT_EDGE, type Catalogue, type InputDeclaration } from "./catalogue";
import {
  declarationOf,
  type GraphDocument,
  type GraphNode,
  type Group,
  type Mode,
  type Size,
  type Subgraph,
} from "./document";
import { OWN_WIDGET, shownWidgets, TITLE_HEIGHT, UPLOAD_MARK } from "./editor-reading";
import { isList, isObject, type Json, type JsonObject } from "./json";
import { withSubgraphs } from "./subgraphs";
import { outputType } from "./typing";

const MODE_NUMBERS: Readonly<Record<Mode, number>> = { active: 0, muted: 2, bypassed: 4 };

export function writeEditor(
  kinds: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size> = new Map(),
): JsonObject {
  const catalogue = withSubgraphs(kinds, document.subgraphs);
  const { definitions } = document.rest;
  const subgraphs = [...document.subgraphs.values()].map((one) => writeSubgraph(catalogue, one));
  return {
    ...writeLevel(catalogue, document, sizes),
    ...(subgraphs.length > 0
      ? { definitions: { ...(isObject(definitions) ? definitions : {}), subgraphs } }
      : {}),
  };
}

/** What is inside, with links in the longer spelling, and its edges apart from its nodes. */
function writeSubgraph(catalogue: Catalogue, { id, inside }: Subgraph): JsonObject {
  const level = writeLevel(catalogue, inside, new Map());
  const { last_node_id, last_link_id, nodes, links, ...rest } = level;
  const state = isObject(rest.state) ? rest.state : {};
  const written = isList(links) ? links.filter(isList) : [];
  return {
    ...rest,
    id,
    name: inside.name,
    state: { ...state, lastNodeId: last_node_id, lastLinkId: last_link_id },
    nodes: (isList(nodes) ? nodes : []).filter(
      (node) => isObject(node) && node.id !== Number(INPUT_EDGE) && node.id !== Number(OUTPUT_EDGE),
    ),
    links: written.map(([number, origin_id, origin_slot, target_id, target_slot, type]) => ({
      ...{ id: number, origin_id, origin_slot, target_id, target_slot, type },
    })),
    ...writeEdge(inside, INPUT_EDGE, rest.inputNode, "inputNode"),
    ...writeEdge(inside, OUTPUT_EDGE, rest.outputNode, "outputNode"),
    inputs: withLinks(rest.inputs, (slot) =>
      written.filter((link) => link[1] === Number(INPUT_EDGE) && link[2] === slot),
    ),
    outputs: withLinks(rest.outputs, (slot) =>
      written.filter((link) => link[3] === Number(OUTPUT_EDGE) && link[4] === slot),
    ),
  };
}

function writeEdge(inside: GraphDocument, edge: string, filed: Json | undefined, name: string): JsonObject {
  const position = inside.nodes.get(edge)?.position ?? { x: 0, y: 0 };
  const kept = isObject(filed) ? filed : {};
  const [, , width = 120, height = 60] = isList(kept.bounding) ? kept.bounding : [];
  return { [name]: { ...kept, id: Number(edge), bounding: [position.x, position.y, width, height] } };
}

function withLinks(slots: Json | undefined, links: (slot: number) => readonly (readonly Json[])[]): Json[] {
  return (isList(slots) ? slots : []).filter(isObject).map((slot, index) => ({
    ...slot,
    linkIds: links(index).flatMap(([number]) => number ?? []),
  }));
}

function writeLevel(
  catalogue: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size>,
): JsonObject {
  const nodes = [...document.nodes.values()];
  const order = executionOrder(document);
  const slots = new Map(nodes.map((node) => [node.id, inputSlots(catalogue, document, node)]));
  return {
    ...document.rest,
    last_node_id: Math.max(0, ...nodes.map((node) => Number(node.id)).filter(Number.isFinite)),
    last_link_id: Math.max(0, ...document.links.map((link) => link.id)),
    nodes: nodes.map((node) =>
      writeNode(catalogue, document, node, {
        order: order.get(node.id) ?? 0,
        size: sizes.get(node.id) ?? node.size,
        slots: slots.get(node.id) ?? [],
      }),
    ),
    links: document.links.map((link) => [
      link.id,
      writeId(link.from),
      link.output,
      writeId(link.to),
      (slots.get(link.to) ?? []).findIndex((input) => input.name === link.input),
      outputType(catalogue, document, link.from, link.output),
    ]),
    groups: document.groups.map(writeGroup),
    config: document.rest.config ?? {},
    extra: document.rest.extra ?? {},
    version: document.rest.version ?? 0.4,
  };
}

/** The sockets of a node, and those of its widgets that are fed by a link. */
function inputSlots(catalogue: Catalogue, document: GraphDocument, node: GraphNode): InputDeclaration[] {
  const fed = new Set(document.links.filter((link) => link.to === node.id).map((link) => link.input));
  const { inputs, virtual } = declarationOf(catalogue, node);
  // Inside a subgraph its inputs are known by their places.
  if (virtual === "subgraph") return [...inputs];
  return [
    ...inputs.filter((input) => input.widget === null),
    ...inputs.filter((input) => input.widget !== null && fed.has(input.name)),
  ];
}

interface Written {
  readonly order: number;
  readonly size: Size | null;
  readonly slots: readonly InputDeclaration[];
}

function writeNode(
  catalogue: Catalogue,
  document: GraphDocument,
  node: GraphNode,
  written: Written,
): JsonObject {
  const declaration = declarationOf(catalogue, node);
  const { listed, flags, properties, inputs: filedInputs, outputs: filedOutputs, ...rest } = node.rest;
  return {
    ...rest,
    id: writeId(node.id),
    type: node.type,
    pos: [node.position.x, node.position.y + TITLE_HEIGHT],
    ...(written.size ? { size: [written.size.width, written.size.height - TITLE_HEIGHT] } : {}),
    flags: {
      ...(isObject(flags) ? flags : {}),
      ...(node.collapsed ? { collapsed: true } : { collapsed: undefined }),
    },
    order: written.order,
    mode: MODE_NUMBERS[node.mode],
    inputs: written.slots.map((input) => ({
      ...filedAs(filedInputs, input.name),
      name: input.name,
      type: input.type,
      ...(input.widget === null ? {} : { widget: { name: input.name } }),
      link: document.links.find((link) => link.to === node.id && link.input === input.name)?.id ?? null,
    })),
    outputs: declaration.outputs.map((output, index) => ({
      ...filedAs(filedOutputs, output.name),
      name: output.name,
      type: output.type,
      links: document.links
        .filter((link) => link.from === node.id && link.output === index)
        .map((link) => link.id),
      slot_index: index,
    })),
    ...(node.title === null ? {} : { title: node.title }),
    ...writeValues(catalogue, node, properties ?? { "Node name for S&R": node.type }, listed),
  };
}

/** What a file said of a socket beyond what is known here. */
function filedAs(slots: Json | undefined, name: string): JsonObject {
  const found = (isList(slots) ? slots : []).find((slot) => isObject(slot) && slot.name === name);
  return isObject(found) ? found : {};
}

function writeValues(
  catalogue: Catalogue,
  node: GraphNode,
  properties: Json,
  listed: Json | undefined,
): JsonObject {
  const declaration = catalogue.get(node.type);
  if (!declaration) return { properties, widgets_values: listed };
  if (declaration.virtual !== "subgraph")
    return { properties, widgets_values: listValues(declaration.inputs, node) };
  const shown = shownWidgets(node, declaration.inputs);
  const noted = isObject(properties) && isList(properties.proxyWidgets);
  return {
    properties: noted ? { ...properties, proxyWidgets: shown } : properties,
    widgets_values: shown.map(([holder, name], place) =>
      holder === OWN_WIDGET ? (node.values[name] ?? null) : ((isList(listed) ? listed[place] : null) ?? null),
    ),
  };
}

function listValues(inputs: readonly InputDeclaration[], node: GraphNode): Json[] {
  return inputs
    .filter((input) => input.widget !== null)
    .flatMap((input) => [
      node.values[input.name] ?? null,
      ...(input.seed ? [node.controls[input.name] ?? "fixed"] : []),
      ...(input.upload ? [UPLOAD_MARK] : []),
    ]);
}

function executionOrder(document: GraphDocument): Map<string, number> {
  const order = new Map<string, number>();
  const visited = new Set<string>();
  const visit = (id: string): void => {
    if (visited.has(id)) return;
    visited.add(id);
    for (const link of document.links) if (link.to === id) visit(link.from);
    order.set(id, order.size);
  };
  for (const id of document.nodes.keys()) visit(id);
  return order;
}

function writeGroup(group: Group): JsonObject {
  const { title, color, rest, x, y, width, height } = group;
  return { ...rest, title, bounding: [x, y, width, height], ...(color === null ? {} : { color }) };
}

function writeId(id: string): number | string {
  return /^-?\d+$/.test(id) ? Number(id) : id;
}
