/**
 * Writes the format that editors keep, see `editor-reading`. Knows nothing of the screen; sizes come from whoever
 * measured them.
 */
import type { Catalogue, InputDeclaration } from "./catalogue";
import {
  declarationOf,
  type GraphDocument,
  type GraphNode,
  type Group,
  type Mode,
  type Size,
} from "./document";
import { TITLE_HEIGHT, UPLOAD_MARK } from "./editor-reading";
import { isObject, type Json, type JsonObject } from "./json";
import { outputType } from "./typing";

const MODE_NUMBERS: Readonly<Record<Mode, number>> = { active: 0, muted: 2, bypassed: 4 };

export function writeEditor(
  catalogue: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size> = new Map(),
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
  const { inputs } = declarationOf(catalogue, node);
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
  const { listed, flags, properties, ...rest } = node.rest;
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
      name: input.name,
      type: input.type,
      ...(input.widget === null ? {} : { widget: { name: input.name } }),
      link: document.links.find((link) => link.to === node.id && link.input === input.name)?.id ?? null,
    })),
    outputs: declaration.outputs.map((output, index) => ({
      name: output.name,
      type: output.type,
      links: document.links
        .filter((link) => link.from === node.id && link.output === index)
        .map((link) => link.id),
      slot_index: index,
    })),
    ...(node.title === null ? {} : { title: node.title }),
    properties: properties ?? { "Node name for S&R": node.type },
    widgets_values: catalogue.has(node.type) ? listValues(declaration.inputs, node) : listed,
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
  return /^\d+$/.test(id) ? Number(id) : id;
}
