/**
 * Places for nodes, left to right along the links. Knows nothing of React; sizes come from whoever measured them.
 */
import { graphlib, layout } from "@dagrejs/dagre";

import type { Catalogue } from "./catalogue";
import { declarationOf, type GraphDocument, type GraphNode, type Point, type Size } from "./document";
import { moveNodes } from "./edits";

export const NODE_WIDTH = 270;
const ROW = 26;
const TEXT_ROWS = 4;

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
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 36, ranksep: 72, align: "UL" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes)
    graph.setNode(node.id, { ...(sizes.get(node.id) ?? estimatedSize(catalogue, node)) });
  for (const link of document.links) {
    if (graph.hasNode(link.from) && graph.hasNode(link.to))
      graph.setEdge(link.from, link.to, {}, String(link.id));
  }
  layout(graph);
  const corners = new Map(
    nodes.map((node): [string, Point] => {
      const { x, y, width, height } = graph.node(node.id) as Point & Size;
      return [node.id, { x: x - width / 2, y: y - height / 2 }];
    }),
  );
  return moveNodes(document, shifted(corners, topLeft(nodes.map((node) => node.position))));
}

function topLeft(points: readonly Point[]): Point {
  return { x: Math.min(...points.map((point) => point.x)), y: Math.min(...points.map((point) => point.y)) };
}

function shifted(places: ReadonlyMap<string, Point>, corner: Point): Map<string, Point> {
  const now = topLeft([...places.values()]);
  return new Map(
    [...places].map(([id, place]) => [
      id,
      { x: Math.round(place.x - now.x + corner.x), y: Math.round(place.y - now.y + corner.y) },
    ]),
  );
}
