/**
 * Copied nodes as text, so that they travel between tabs and windows, and their way back with new ids. Knows nothing
 * of the browser's clipboard.
 */
import { parse, stringify } from "../../api/json";
import type { Catalogue } from "./catalogue";
import {
  freshLinkId,
  freshNodeId,
  type GraphDocument,
  type GraphNode,
  type Link,
  type Point,
} from "./document";
import { isEditorFormat, objects } from "./editor-reading";
import { writeEditor } from "./editor-writing";
import { isList, isObject, type Json, type JsonObject } from "./json";
import { readEditor } from "./subgraph-reading";
import { subgraphsUsed } from "./subgraphs";

const MARK = "calotype-graph";

/** `subgraphs` are those of the whole graph: what the copied nodes stand for goes with them. */
export function copied(
  catalogue: Catalogue,
  document: GraphDocument,
  ids: ReadonlySet<string>,
  subgraphs: GraphDocument["subgraphs"] = document.subgraphs,
): string {
  const nodes = new Map(
    [...document.nodes].filter(([id, node]) => ids.has(id) && catalogue.get(node.type)?.virtual !== "edge"),
  );
  const part: GraphDocument = {
    name: document.name,
    nodes,
    links: document.links.filter((link) => nodes.has(link.from) && nodes.has(link.to)),
    groups: document.groups.filter((group) => ids.has(group.id)),
    subgraphs: subgraphsUsed(nodes.values(), subgraphs),
    rest: {},
  };
  return stringify({ [MARK]: writeEditor(catalogue, part) });
}

export interface Pasted {
  readonly document: GraphDocument;
  readonly ids: ReadonlySet<string>;
}

/** The document with what the text holds, its top left corner at a place; null if the text holds no nodes. */
export function pasted(
  catalogue: Catalogue,
  document: GraphDocument,
  text: string,
  at: Point,
): Pasted | null {
  const part = readPart(catalogue, text);
  if (!part) return null;
  const places = [...part.nodes.values()].map((node) => node.position).concat(part.groups);
  if (places.length === 0) return null;
  const left = Math.min(...places.map((place) => place.x));
  const top = Math.min(...places.map((place) => place.y));
  const shift = (place: Point): Point => ({ x: place.x - left + at.x, y: place.y - top + at.y });
  const renamed = new Map<string, string>();
  let now = document;
  for (const node of part.nodes.values()) {
    const id = freshNodeId(now);
    renamed.set(node.id, id);
    const added: GraphNode = { ...node, id, position: shift(node.position), rest: unlinked(node.rest) };
    now = { ...now, nodes: new Map(now.nodes).set(id, added) };
  }
  const firstLink = freshLinkId(document);
  const links = part.links.map((link, index): Link => ({
    output: link.output,
    input: link.input,
    id: firstLink + index,
    from: renamed.get(link.from) ?? link.from,
    to: renamed.get(link.to) ?? link.to,
  }));
  const groups = part.groups.map((group, index) => ({
    ...group,
    ...shift(group),
    id: `group-${firstGroup(document) + index}`,
  }));
  return {
    document: {
      ...now,
      links: [...now.links, ...links],
      groups: [...now.groups, ...groups],
      subgraphs: part.subgraphs.size > 0 ? new Map([...part.subgraphs, ...now.subgraphs]) : now.subgraphs,
    },
    ids: new Set([...renamed.values(), ...groups.map((group) => group.id)]),
  };
}

/** Without the numbers of links, which mean other links here. */
function unlinked(filed: JsonObject): JsonObject {
  const { inputs, outputs } = filed;
  return {
    ...filed,
    ...(isList(inputs) ? { inputs: objects(inputs).map((slot) => ({ ...slot, link: null })) } : {}),
    ...(isList(outputs) ? { outputs: objects(outputs).map((slot) => ({ ...slot, links: [] })) } : {}),
  };
}

function firstGroup(document: GraphDocument): number {
  return (
    document.groups.reduce((n, group) => Math.max(n, Number(group.id.replace("group-", "")) || 0), 0) + 1
  );
}

function readPart(catalogue: Catalogue, text: string): GraphDocument | null {
  let json: Json;
  try {
    json = parse(text) as Json;
  } catch {
    return null;
  }
  const part = isObject(json) ? json[MARK] : undefined;
  return part !== undefined && isEditorFormat(part) ? readEditor(catalogue, part) : null;
}
