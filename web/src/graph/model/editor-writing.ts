/**
 * Writes the format that editors keep, see `editor-reading`. What came from a file and has not changed is written as
 * it was read, whether this editor understands it or not. Sizes come from the screen.
 */
import { INPUT_EDGE, OUTPUT_EDGE, type Catalogue, type InputDeclaration } from "./catalogue";
import {
  declarationOf,
  type GraphDocument,
  type GraphNode,
  type Group,
  type Link,
  type Mode,
  type Size,
  type Subgraph,
} from "./document";
import {
  linkFields,
  nameOf,
  objects,
  readCollapsed,
  readGroup,
  readMode,
  readPoint,
  readSize,
  TITLE_HEIGHT,
  type LinkFields,
} from "./editor-reading";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";
import { withSubgraphs } from "./subgraphs";
import { outputType } from "./typing";
import { isFiled, same, writeWidgets } from "./widget-values";

const MODE_NUMBERS: Readonly<Record<Mode, number>> = { active: 0, muted: 2, bypassed: 4 };

export function writeEditor(
  kinds: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size> = new Map(),
): JsonObject {
  const catalogue = withSubgraphs(kinds, document.subgraphs);
  const { definitions } = document.rest;
  const filed = isObject(definitions) && isList(definitions.subgraphs) ? definitions.subgraphs : [];
  const waiting = new Map(document.subgraphs);
  const known = filed.map((one): Json => {
    const found = isObject(one) && typeof one.id === "string" ? waiting.get(one.id) : undefined;
    if (!found) return one;
    waiting.delete(found.id);
    return writeSubgraph(catalogue, found);
  });
  const subgraphs = [...known, ...[...waiting.values()].map((one) => writeSubgraph(catalogue, one))];
  return {
    ...writeLevel(catalogue, document, sizes, isObject),
    ...(subgraphs.length > 0
      ? { definitions: { ...(isObject(definitions) ? definitions : {}), subgraphs } }
      : {}),
  };
}

/** What is inside, with links in the longer spelling, and its edges apart from its nodes. */
function writeSubgraph(catalogue: Catalogue, { id, inside }: Subgraph): JsonObject {
  const state = isObject(inside.rest.state) ? inside.rest.state : {};
  const level = writeLevel(
    catalogue,
    {
      ...inside,
      rest: { ...inside.rest, last_node_id: state.lastNodeId, last_link_id: state.lastLinkId },
    },
    new Map(),
    (filed) => !isList(filed),
  );
  const { last_node_id, last_link_id, nodes, links, ...rest } = level;
  const written = (isList(links) ? links : []).map(linkFields);
  const before = inside.filedLinks?.all.map(linkFields);
  return {
    ...rest,
    id,
    name: asText(rest.name) === inside.name ? rest.name : inside.name,
    state: { ...state, lastNodeId: last_node_id, lastLinkId: last_link_id },
    nodes: (isList(nodes) ? nodes : []).filter(
      (node) => isObject(node) && asText(node.id) !== INPUT_EDGE && asText(node.id) !== OUTPUT_EDGE,
    ),
    links,
    ...writeEdge(inside, INPUT_EDGE, rest.inputNode, "inputNode"),
    ...writeEdge(inside, OUTPUT_EDGE, rest.outputNode, "outputNode"),
    inputs: withLinks(rest.inputs, before, written, (slot) => (link) => {
      return link.from === INPUT_EDGE && link.output === slot;
    }),
    outputs: withLinks(rest.outputs, before, written, (slot) => (link) => {
      return link.to === OUTPUT_EDGE && link.slot === slot;
    }),
  };
}

function writeEdge(inside: GraphDocument, edge: string, filed: Json | undefined, name: string): JsonObject {
  const position = inside.nodes.get(edge)?.position ?? { x: 0, y: 0 };
  const kept = isObject(filed) ? filed : {};
  const [x, y, width = 120, height = 60] = isList(kept.bounding) ? kept.bounding : [];
  const read = readPoint([x ?? null, Number(y) + TITLE_HEIGHT]);
  if (read.x === position.x && read.y === position.y) return { [name]: kept };
  return { [name]: { ...kept, id: Number(edge), bounding: [position.x, position.y, width, height] } };
}

type Links = readonly LinkFields[];

function withLinks(
  slots: Json | undefined,
  before: Links | undefined,
  now: Links,
  isAt: (slot: number) => (link: LinkFields) => boolean,
): Json[] {
  return objects(slots).map((slot, index) => ({
    ...slot,
    linkIds: linkIds(slot.linkIds, before, now, isAt(index)),
  }));
}

/** The ids of a socket's links: as the file lists them, right or wrong, where these links are still the same. */
function linkIds(
  listed: Json | undefined,
  before: Links | undefined,
  now: Links,
  isAt: (link: LinkFields) => boolean,
): Json | undefined {
  const ids = now.filter(isAt).map((link) => link.id);
  const filed = before?.filter(isAt).map((link) => link.id) ?? (isList(listed) ? listed.map(Number) : []);
  const unchanged = filed.length === ids.length && filed.every((id) => ids.includes(id));
  const isListed = listed !== undefined && listed !== null;
  return unchanged && (isListed || ids.length === 0) ? listed : ids;
}

/** A level being written: what its nodes and links have in common. */
interface Level {
  readonly catalogue: Catalogue;
  /** The sockets of every node as they are written, without their links. */
  readonly slots: ReadonlyMap<string, readonly JsonObject[]>;
  /** What all links said in the file. */
  readonly before: Links | undefined;
  /** What all links say as they are written. */
  readonly now: Links;
}

function writeLevel(
  catalogue: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size>,
  asObjects: (filed: Json | undefined) => boolean,
): JsonObject {
  const { rest } = document;
  const nodes = [...document.nodes.values()];
  const slots = new Map(nodes.map((node) => [node.id, inputSlots(catalogue, document, node)]));
  const long = asObjects(document.links.find((link) => link.filed !== undefined)?.filed);
  const drawn = document.links.map((link) => writeLink(catalogue, document, link, slots, long));
  const links = withUndrawn(document, slots, drawn);
  const before = document.filedLinks?.all.map(linkFields);
  const level: Level = { catalogue, slots, before, now: links.map(linkFields) };
  const order = executionOrder(document);
  const blank: JsonObject = isFiled(rest) ? {} : { groups: [], config: {}, extra: {}, version: 0.4 };
  return {
    ...blank,
    ...rest,
    last_node_id: highest(
      rest.last_node_id,
      nodes.map((node) => [node.id, asText(node.rest.id) === node.id]),
    ),
    last_link_id: highest(
      rest.last_link_id,
      document.links.map((link) => [link.id, link.filed !== undefined]),
    ),
    nodes: nodes.map((node) =>
      writeNode(level, node, order.get(node.id) ?? 0, sizes.get(node.id) ?? node.size),
    ),
    links,
    ...(document.groups.length > 0 || rest.groups !== undefined
      ? { groups: document.groups.map(writeGroup) }
      : {}),
  };
}

/** The highest number given so far; a file's own word on it counts for everything that came from the file. */
function highest(filed: Json | undefined, used: readonly (readonly [number | string, boolean])[]): Json {
  const before = typeof filed === "number" ? filed : null;
  const now = used.filter(([, isFiled]) => before === null || !isFiled).map(([id]) => Number(id));
  return Math.max(before ?? 0, ...now.filter(Number.isFinite));
}

type Slots = ReadonlyMap<string, readonly JsonObject[]>;

function writeLink(
  catalogue: Catalogue,
  document: GraphDocument,
  link: Link,
  slots: Slots,
  long: boolean,
): Json {
  const { filed } = link;
  const targets = slots.get(link.to) ?? [];
  if (filed !== undefined) {
    const { slot, ...ends } = linkFields(filed);
    const target = targets[slot];
    const unchanged = (["id", "from", "output", "to"] as const).every((end) => ends[end] === link[end]);
    if (unchanged && target && nameOf(target) === link.input) return filed;
  }
  const slot = targets.findIndex((target) => nameOf(target) === link.input);
  const type = outputType(catalogue, document, link.from, link.output);
  const [origin_id, target_id] = [writeId(link.from), writeId(link.to)];
  if (!long) return [link.id, origin_id, link.output, target_id, slot, type];
  return { id: link.id, origin_id, origin_slot: link.output, target_id, target_slot: slot, type };
}

/** Links that cannot be drawn go back to their places, unless a node is gone or another link feeds the socket. */
function withUndrawn(document: GraphDocument, slots: Slots, drawn: readonly Json[]): Json[] {
  const links = [...drawn];
  for (const { at, ends, link } of document.filedLinks?.undrawn ?? []) {
    const { to, slot } = linkFields(link);
    const target = slots.get(to)?.[slot];
    const replaced = document.links.some(
      (one) => one.filed === undefined && one.to === to && target && one.input === nameOf(target),
    );
    if (!replaced && ends.every((end) => document.nodes.has(end))) links.splice(at, 0, link);
  }
  return links;
}

/** The sockets that the file has, and those that a link needs besides; all of them where there is no file. */
function inputSlots(catalogue: Catalogue, document: GraphDocument, node: GraphNode): readonly JsonObject[] {
  const fed = new Set(document.links.filter((link) => link.to === node.id).map((link) => link.input));
  const { inputs, virtual } = declarationOf(catalogue, node);
  const filed = objects(node.rest.inputs);
  const known = new Set(filed.map(nameOf));
  const needed = (input: InputDeclaration) =>
    fed.has(input.name) || (!isFiled(node.rest) && (input.widget === null || virtual === "subgraph"));
  const missing = inputs.filter((input) => !known.has(input.name) && needed(input));
  // Inside a subgraph its inputs are known by their places.
  const sorted =
    virtual === "subgraph"
      ? missing
      : [
          ...missing.filter((input) => input.widget === null),
          ...missing.filter((input) => input.widget !== null),
        ];
  return [...filed, ...sorted.map(newSlot)];
}

function newSlot({ name, type, widget }: InputDeclaration): JsonObject {
  return { name, type, ...(widget === null ? {} : { widget: { name } }) };
}

function writeNode(level: Level, node: GraphNode, order: number, size: Size | null): JsonObject {
  const { rest: filed } = node;
  const { x, y } = node.position;
  const known = isFiled(filed);
  const keep = (name: string, unchanged: boolean, written: Json | undefined): JsonObject =>
    known && unchanged ? {} : { [name]: written };
  const flags = isObject(filed.flags) ? filed.flags : {};
  return {
    ...(known ? {} : { properties: { "Node name for S&R": node.type } }),
    ...filed,
    ...keep("id", asText(filed.id) === node.id, writeId(node.id)),
    type: node.type,
    ...keep("pos", same({ ...readPoint(filed.pos) }, { x, y }), [x, y + TITLE_HEIGHT]),
    ...(size ? keep("size", sameSize(readSize(filed.size), size), [size.width, size.height - TITLE_HEIGHT]) : {}), // prettier-ignore
    ...keep("flags", readCollapsed(filed.flags) === node.collapsed, {
      ...flags,
      collapsed: node.collapsed ? true : undefined,
    }),
    ...keep("order", Number(filed.order) === order, order),
    ...keep("mode", readMode(filed.mode) === node.mode, MODE_NUMBERS[node.mode]),
    ...writeSockets(level, node),
    ...keep("title", sameTitle(level, node), node.title ?? undefined),
    ...writeValues(level.catalogue, node),
  };
}

function sameSize(filed: Size | null, size: Size): boolean {
  return filed?.width === size.width && filed.height === size.height;
}

/** A file may write the title that a node has anyway. */
function sameTitle({ catalogue }: Level, node: GraphNode): boolean {
  const filed = asText(node.rest.title);
  const usual = catalogue.get(node.type)?.title ?? node.type;
  return (filed === usual ? null : filed || null) === node.title;
}

function writeSockets({ catalogue, slots, before, now }: Level, node: GraphNode): JsonObject {
  const { inputs: filedInputs, outputs: filedOutputs } = node.rest;
  const into = now.filter((link) => link.to === node.id);
  const from = now.filter((link) => link.from === node.id);
  const inputs = (slots.get(node.id) ?? []).map((slot, index): JsonObject => {
    const ids = into.filter((link) => link.slot === index).map((link) => link.id);
    const named = slot.link ?? null;
    const kept = named === null ? ids.length === 0 : ids.includes(Number(named));
    return kept ? slot : { ...slot, link: ids[0] ?? null };
  });
  const declared = declarationOf(catalogue, node).outputs;
  const filed = objects(filedOutputs);
  const count = isFiled(node.rest)
    ? Math.max(filed.length, ...from.map((link) => link.output + 1))
    : declared.length;
  const outputs = Array.from({ length: count }, (_, index): JsonObject => {
    const slot = filed[index];
    const isAt = (link: LinkFields) => link.from === node.id && link.output === index;
    const { name = "", type = "*" } = declared[index] ?? {};
    if (!slot) return { name, type, links: from.filter(isAt).map((link) => link.id), slot_index: index };
    return { ...slot, links: linkIds(slot.links, before, now, isAt) };
  });
  return {
    ...(isFiled(node.rest) && filedInputs === undefined && inputs.length === 0 ? {} : { inputs }),
    ...(isFiled(node.rest) && filedOutputs === undefined && outputs.length === 0 ? {} : { outputs }),
  };
}

function writeValues(catalogue: Catalogue, node: GraphNode): JsonObject {
  // By its own declaration: a primitive's widget is not in the catalogue.
  if (catalogue.has(node.type)) return writeWidgets(declarationOf(catalogue, node), node);
  // Made when its kind was known, which by now it is not: no order is known for its values, but their names are.
  return isFiled(node.rest) || Object.keys(node.values).length === 0 ? {} : { widgets_values: node.values };
}

/** The order in which nodes run; the file's own where no node and no link is new. */
function executionOrder(document: GraphDocument): ReadonlyMap<string, number> {
  const filed = new Map([...document.nodes].map(([id, node]) => [id, Number(node.rest.order ?? NaN)]));
  const complete = [...filed].every(
    ([id, at]) => Number.isFinite(at) || id === INPUT_EDGE || id === OUTPUT_EDGE,
  );
  if (complete && document.links.every((link) => link.filed !== undefined)) return filed;
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

function writeGroup(group: Group, index: number): JsonObject {
  const { title, color, rest, x, y, width, height } = group;
  const filed = readGroup(rest, index);
  const placed = filed.x === x && filed.y === y && filed.width === width && filed.height === height;
  return {
    ...rest,
    ...(isFiled(rest) && filed.title === title ? {} : { title }),
    ...(isFiled(rest) && placed ? {} : { bounding: [x, y, width, height] }),
    ...(filed.color === color ? {} : { color: color ?? undefined }),
  };
}

function writeId(id: string): number | string {
  return /^-?\d+$/.test(id) ? Number(id) : id;
}
