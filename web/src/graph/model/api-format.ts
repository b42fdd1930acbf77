/**
 * The format that runs: node id → class and inputs, links as [node, output]. Writing resolves what only editors
 * know: reroutes, primitives, notes, muted and bypassed nodes, subgraphs. Knows nothing of places on the screen.
 */
import { OUTPUT_EDGE, type Catalogue } from "./catalogue";
import {
  BLANK_NODE,
  declarationOf,
  linkInto,
  newNode,
  NO_SUBGRAPHS,
  titleOf,
  type GraphDocument,
  type GraphNode,
  type Link,
} from "./document";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";
import { DEEPEST, withSubgraphs } from "./subgraphs";
import { accepts } from "./typing";

export interface ApiNode {
  readonly class_type: string;
  readonly inputs: Readonly<Record<string, Json>>;
  readonly _meta: { readonly title: string };
}

export type ApiPrompt = Readonly<Record<string, ApiNode>>;

type Source = { readonly link: readonly [string, number] } | { readonly value: Json } | null;

/** One level of nodes and, inside a subgraph, the node it stands for and the level that is on. */
interface Scope {
  readonly catalogue: Catalogue;
  readonly whole: GraphDocument;
  readonly document: GraphDocument;
  readonly prefix: string;
  readonly outside: { readonly scope: Scope; readonly node: GraphNode } | null;
  readonly depth: number;
}

export function writeApi(kinds: Catalogue, whole: GraphDocument): ApiPrompt {
  const catalogue = withSubgraphs(kinds, whole.subgraphs);
  const top = { catalogue, whole, document: whole, prefix: "", outside: null, depth: 0 };
  return Object.fromEntries(writeNodes(top));
}

function writeNodes(scope: Scope): [string, ApiNode][] {
  const { catalogue, document, prefix } = scope;
  return [...document.nodes.values()].flatMap((node): [string, ApiNode][] => {
    if (node.mode !== "active") return [];
    const inside = within(scope, node);
    if (inside) return writeNodes(inside);
    if (catalogue.get(node.type)?.virtual) return [];
    const inputs = writeInputs(scope, node);
    return [
      [prefix + node.id, { class_type: node.type, inputs, _meta: { title: titleOf(catalogue, node) } }],
    ];
  });
}

/** The level below a node that stands for a subgraph. */
function within(scope: Scope, node: GraphNode): Scope | null {
  const inside = scope.whole.subgraphs.get(node.type)?.inside;
  if (!inside || scope.depth >= DEEPEST) return null;
  return {
    ...scope,
    document: inside,
    prefix: `${scope.prefix}${node.id}:`,
    outside: { scope, node },
    depth: scope.depth + 1,
  };
}

function writeInputs(scope: Scope, node: GraphNode): Record<string, Json> {
  const inputs: Record<string, Json> = {};
  for (const { name, type } of declarationOf(scope.catalogue, node).inputs) {
    const link = linkInto(scope.document, node.id, name);
    const source = link ? follow(scope, link, type) : null;
    const value = source && "link" in source ? [...source.link] : (source?.value ?? node.values[name]);
    if (value !== undefined) inputs[name] = value;
  }
  // What an old file says beyond the declaration stays: the server tolerates it.
  return {
    ...inputs,
    ...Object.fromEntries(Object.entries(node.values).filter(([name]) => !(name in inputs))),
  };
}

/** What really feeds a link, wherever it comes from, or the value that is there in place of a link. */
function follow(scope: Scope, link: Link, wanted: string): Source {
  const visited = new Set<string>();
  for (let now: At = { scope, link }; !visited.has(placeOf(now));) {
    visited.add(placeOf(now));
    const source = now.scope.document.nodes.get(now.link.from);
    if (!source || source.mode === "muted") return null;
    const next = oneBack(now, source, wanted);
    if (!next || "value" in next) return next;
    if (next === now) return { link: [now.scope.prefix + source.id, now.link.output] };
    now = next;
  }
  return null;
}

interface At {
  readonly scope: Scope;
  readonly link: Link;
}

function placeOf({ scope, link }: At): string {
  return `${scope.prefix}${link.id}`;
}

/** The link before one: through reroutes, past bypassed nodes, into and out of subgraphs; the same where it begins. */
function oneBack(at: At, source: GraphNode, wanted: string): At | { readonly value: Json } | null {
  const { scope, link } = at;
  const virtual = scope.catalogue.get(source.type)?.virtual;
  const on = (to: Link | undefined, where = scope): At | null => (to ? { scope: where, link: to } : null);
  if (virtual === "primitive") return { value: source.values.value ?? null };
  if (virtual === "reroute") return on(linkInto(scope.document, source.id, ""));
  if (virtual === "edge") return entering(scope, link.output);
  if (source.mode === "bypassed") return on(passedBy(scope, source, link.output, wanted));
  if (virtual !== "subgraph") return at;
  const inside = within(scope, source);
  const output = declarationOf(scope.catalogue, source).outputs[link.output];
  return inside && output ? on(linkInto(inside.document, OUTPUT_EDGE, output.name), inside) : null;
}

/** What comes into a subgraph by one of its inputs: a link to its node, or a value written on that. */
function entering({ outside }: Scope, slot: number): At | { readonly value: Json } | null {
  const input = outside && declarationOf(outside.scope.catalogue, outside.node).inputs[slot];
  if (!input) return null;
  const link = linkInto(outside.scope.document, outside.node.id, input.name);
  if (link) return { scope: outside.scope, link };
  const value = outside.node.values[input.name];
  return value === undefined || input.widget === null ? null : { value };
}

/** A bypassed node hands on the input of the wanted type: the one at the output's own place first, then in order. */
function passedBy(scope: Scope, node: GraphNode, output: number, wanted: string): Link | undefined {
  const sockets = declarationOf(scope.catalogue, node).inputs.filter((input) => input.widget === null);
  const own = sockets[output];
  const suiting = [...(own ? [own] : []), ...sockets].find((input) => accepts(wanted, input.type));
  return suiting && linkInto(scope.document, node.id, suiting.name);
}

export function isApiPrompt(json: Json): json is JsonObject {
  if (!isObject(json)) return false;
  const nodes = Object.values(json);
  return nodes.length > 0 && nodes.every((node) => isObject(node) && typeof node.class_type === "string");
}

/** Reads what runs. Places are all at the origin: an automatic layout has to follow. */
export function readApi(catalogue: Catalogue, prompt: JsonObject): GraphDocument {
  const nodes = new Map<string, GraphNode>();
  const links: Link[] = [];
  const written = Object.entries(prompt).flatMap(([id, node]) =>
    isObject(node) ? [[id, node] as const] : [],
  );
  for (const [id, node] of written) {
    const values: Record<string, Json> = {};
    for (const [input, value] of Object.entries(isObject(node.inputs) ? node.inputs : {})) {
      const ends = value === undefined ? null : linkEnds(prompt, value);
      if (ends) links.push({ id: links.length + 1, from: ends[0], output: ends[1], to: id, input });
      else if (value !== undefined) values[input] = value;
    }
    nodes.set(id, readNode(catalogue, id, node, values));
  }
  for (const [id, node] of nodes)
    if (!catalogue.has(node.type)) nodes.set(id, withGuessedSockets(node, links));
  return {
    name: "",
    nodes,
    links: withinDeclarations(catalogue, nodes, links),
    groups: [],
    subgraphs: NO_SUBGRAPHS,
    rest: {},
  };
}

function linkEnds(prompt: JsonObject, value: Json): [string, number] | null {
  if (!isList(value) || value.length !== 2 || typeof value[1] !== "number") return null;
  const id = asText(value[0]);
  return id in prompt ? [id, value[1]] : null;
}

function readNode(
  catalogue: Catalogue,
  id: string,
  written: JsonObject,
  values: Record<string, Json>,
): GraphNode {
  const type = asText(written.class_type);
  const declaration = catalogue.get(type);
  const meta =
    isObject(written._meta) && typeof written._meta.title === "string" ? written._meta.title : null;
  const title = meta === (declaration?.title ?? type) ? null : meta;
  const blank = declaration ? newNode(declaration, id, { x: 0, y: 0 }) : { ...BLANK_NODE, id, type };
  // A file asks for exactly these seeds: they stay until the user says otherwise.
  const controls = Object.fromEntries(Object.keys(blank.controls).map((input) => [input, "fixed" as const]));
  return { ...blank, title, controls, values: { ...blank.values, ...values } };
}

function withGuessedSockets(node: GraphNode, links: readonly Link[]): GraphNode {
  const inputs = links.filter((link) => link.to === node.id).map((link) => ({ name: link.input, type: "*" }));
  const count = links
    .filter((link) => link.from === node.id)
    .reduce((n, link) => Math.max(n, link.output + 1), 0);
  const outputs = Array.from({ length: count }, (_, index) => ({ name: String(index), type: "*" }));
  return { ...node, filed: { inputs, outputs } };
}

/** Old files hold links into inputs that no longer exist; what cannot be drawn is left out. */
export function withinDeclarations(
  catalogue: Catalogue,
  nodes: ReadonlyMap<string, GraphNode>,
  links: readonly Link[],
): Link[] {
  return links.filter((link) => {
    const [source, target] = [nodes.get(link.from), nodes.get(link.to)];
    if (!source || !target) return false;
    const known = declarationOf(catalogue, target).inputs.some((input) => input.name === link.input);
    return known && link.output < declarationOf(catalogue, source).outputs.length;
  });
}
