/**
 * The format that runs: node id → class and inputs, links as [node, output]. Writing resolves what only editors
 * know: reroutes, primitives, notes, muted and bypassed nodes. Knows nothing of places on the screen.
 */
import type { Catalogue } from "./catalogue";
import {
  BLANK_NODE,
  declarationOf,
  linkInto,
  newNode,
  titleOf,
  type GraphDocument,
  type GraphNode,
  type Link,
} from "./document";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";
import { accepts } from "./typing";

export interface ApiNode {
  readonly class_type: string;
  readonly inputs: Readonly<Record<string, Json>>;
  readonly _meta: { readonly title: string };
}

export type ApiPrompt = Readonly<Record<string, ApiNode>>;

type Source = { readonly link: readonly [string, number] } | { readonly value: Json } | null;

export function writeApi(catalogue: Catalogue, document: GraphDocument): ApiPrompt {
  const runs = [...document.nodes.values()].filter(
    (node) => node.mode === "active" && !catalogue.get(node.type)?.virtual,
  );
  return Object.fromEntries(
    runs.map((node) => {
      const inputs = writeInputs(catalogue, document, node);
      return [node.id, { class_type: node.type, inputs, _meta: { title: titleOf(catalogue, node) } }];
    }),
  );
}

function writeInputs(catalogue: Catalogue, document: GraphDocument, node: GraphNode): Record<string, Json> {
  const inputs: Record<string, Json> = {};
  for (const { name, type } of declarationOf(catalogue, node).inputs) {
    const link = linkInto(document, node.id, name);
    const source = link ? follow(catalogue, document, link, type) : null;
    const value = source && "link" in source ? [...source.link] : (source?.value ?? node.values[name]);
    if (value !== undefined) inputs[name] = value;
  }
  // What an old file says beyond the declaration stays: the server tolerates it.
  return {
    ...inputs,
    ...Object.fromEntries(Object.entries(node.values).filter(([name]) => !(name in inputs))),
  };
}

/** What really feeds a link: through reroutes, past bypassed nodes, to a value where a primitive holds one. */
function follow(catalogue: Catalogue, document: GraphDocument, link: Link, wanted: string): Source {
  const visited = new Set<number>();
  for (let now: Link | undefined = link; now && !visited.has(now.id);) {
    visited.add(now.id);
    const source = document.nodes.get(now.from);
    if (!source || source.mode === "muted") return null;
    const virtual = catalogue.get(source.type)?.virtual;
    if (virtual === "primitive") return { value: source.values.value ?? null };
    if (virtual === "reroute") now = linkInto(document, source.id, "");
    else if (source.mode === "bypassed") now = passedBy(catalogue, document, source, now.output, wanted);
    else return { link: [source.id, now.output] };
  }
  return null;
}

/** A bypassed node hands on the input of the wanted type: the one at the output's own place first, then in order. */
function passedBy(
  catalogue: Catalogue,
  document: GraphDocument,
  node: GraphNode,
  output: number,
  wanted: string,
): Link | undefined {
  const sockets = declarationOf(catalogue, node).inputs.filter((input) => input.widget === null);
  const own = sockets[output];
  const suiting = [...(own ? [own] : []), ...sockets].find((input) => accepts(wanted, input.type));
  return suiting && linkInto(document, node.id, suiting.name);
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
  return { name: "", nodes, links: withinDeclarations(catalogue, nodes, links), groups: [], rest: {} };
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
