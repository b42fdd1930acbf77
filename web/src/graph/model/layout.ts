/**
 * Places for nodes, left to right along the links. Knows nothing of React; sizes come from whoever measured them.
 */
import { graphlib, layout } from "@dagrejs/dagre";

import type { Catalogue } from "./catalogue";
import {
  declarationOf,
  type Box,
  type GraphDocument,
  type GraphNode,
  type Link,
  type Point,
  type Size,
} from "./document";
import { moveNodes } from "./edits";

export const NODE_WIDTH = 270;
const ROW = 26;
const TEXT_ROWS = 4;
const GAP = 90;
const SHEET_ASPECT = 1.7;

/** How large a node will be drawn, roughly, before it has been. */
export function estimatedSize(catalogue: Catalogue, node: GraphNode): Size {
  const { inputs, outputs } = declarationOf(catalogue, node);
  const sockets = Math.max(inputs.filter((input) => input.widget === null).length, outputs.length);
  const widgets = inputs.filter((input) => input.widget !== null);
  const rows = widgets.reduce(
    (sum, input) => sum + (input.multiline ? TEXT_ROWS : input.seed ? 2 : 1),
    sockets,
  );
  return { width: NODE_WIDTH, height: 44 + rows * ROW };
}

/** The document with all nodes, or only some, laid out anew; what is laid out keeps its top left corner. */
export function arranged(
  catalogue: Catalogue,
  document: GraphDocument,
  sizes: ReadonlyMap<string, Size>,
  only?: ReadonlySet<string>,
): GraphDocument {
  const nodes = [...document.nodes.values()].filter((node) => !only || only.has(node.id));
  if (nodes.length === 0) return document;
  const measured = new Map(
    nodes.map((node) => [node.id, sizes.get(node.id) ?? estimatedSize(catalogue, node)]),
  );
  const links = document.links.filter((link) => measured.has(link.from) && measured.has(link.to));
  const parts = connectedParts([...measured.keys()], links).map((ids) => laidOut(ids, links, measured));
  const corner = topLeft(nodes.map((node) => node.position));
  const places = [...packed(parts)].map(([id, { x, y }]): [string, Point] => [
    id,
    { x: Math.round(x + corner.x), y: Math.round(y + corner.y) },
  ]);
  return moveNodes(document, new Map(places));
}

interface Part extends Size {
  readonly places: ReadonlyMap<string, Point>;
}

/** One connected part, from its own corner. */
function laidOut(ids: readonly string[], links: readonly Link[], sizes: ReadonlyMap<string, Size>): Part {
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 36, ranksep: 72, align: "UL" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of ids) graph.setNode(id, { ...sizes.get(id) });
  for (const link of links) {
    if (graph.hasNode(link.from)) graph.setEdge(link.from, link.to, {}, String(link.id));
  }
  layout(graph);
  const boxes = ids.map((id) => ({ id, ...(graph.node(id) as Box) }));
  const corners = boxes.map(({ x, y, width, height }) => ({ x: x - width / 2, y: y - height / 2 }));
  const corner = topLeft(corners);
  const places = boxes.map(({ id }, index): [string, Point] => {
    const { x, y } = corners[index] ?? corner;
    return [id, { x: x - corner.x, y: y - corner.y }];
  });
  return {
    places: new Map(places),
    width: Math.max(...boxes.map((box) => box.x + box.width / 2)) - corner.x,
    height: Math.max(...boxes.map((box) => box.y + box.height / 2)) - corner.y,
  };
}

function connectedParts(ids: readonly string[], links: readonly Link[]): string[][] {
  const neighbours = new Map(ids.map((id) => [id, [] as string[]]));
  for (const { from, to } of links) {
    neighbours.get(from)?.push(to);
    neighbours.get(to)?.push(from);
  }
  const seen = new Set<string>();
  return ids.flatMap((id) => {
    const part: string[] = [];
    const waiting = [id];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      if (seen.has(next)) continue;
      seen.add(next);
      part.push(next);
      waiting.push(...(neighbours.get(next) ?? []));
    }
    return part.length > 0 ? [part] : [];
  });
}

/** Parts in rows like words in lines, on a sheet about as wide as a screen. */
function packed(parts: readonly Part[]): Map<string, Point> {
  const area = parts.reduce((sum, part) => sum + (part.width + GAP) * (part.height + GAP), 0);
  const widest = Math.max(Math.sqrt(area * SHEET_ASPECT), ...parts.map((part) => part.width));
  const places = new Map<string, Point>();
  let [left, top, tallest] = [0, 0, 0];
  for (const part of parts) {
    if (left > 0 && left + part.width > widest) [left, top, tallest] = [0, top + tallest + GAP, 0];
    for (const [id, { x, y }] of part.places) places.set(id, { x: x + left, y: y + top });
    left += part.width + GAP;
    tallest = Math.max(tallest, part.height);
  }
  return places;
}

function topLeft(points: readonly Point[]): Point {
  return { x: Math.min(...points.map((point) => point.x)), y: Math.min(...points.map((point) => point.y)) };
}
