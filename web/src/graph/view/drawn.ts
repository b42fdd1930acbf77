/**
 * The document as the canvas library wants it. What did not change keeps its identity, so that only what changed is
 * drawn again. Knows nothing of how nodes look.
 */
import type { Edge, Handle, Node } from "@xyflow/react";

import type { Catalogue } from "../model/catalogue";
import type { GraphDocument, GraphNode, Group, Link } from "../model/document";
import { titleOf } from "../model/document";
import { outputType, typeColor, type Ends } from "../model/typing";
import { documentOf, type State } from "../state";

export type NodeDrawn = Node<{ node: GraphNode }, "node">;
export type GroupDrawn = Node<{ group: Group }, "group-frame">;
export type Drawn = NodeDrawn | GroupDrawn;
export type LinkDrawn = Edge<{ color: string }, "link">;

export function inputHandle(name: string): string {
  return `in:${name}`;
}

export function outputHandle(index: number): string {
  return `out:${index}`;
}

export function inputOf(handle: string | null | undefined): string {
  return (handle ?? "").replace(/^in:/, "");
}

export function outputOf(handle: string | null | undefined): number {
  return Number((handle ?? "").replace(/^out:/, ""));
}

/** The link that two sockets would make, whichever was first in the hand. */
export function endsBetween(one: Handle, other: Handle): Ends | null {
  if (one.type === other.type) return null;
  const [source, target] = one.type === "source" ? [one, other] : [other, one];
  return { from: source.nodeId, output: outputOf(source.id), to: target.nodeId, input: inputOf(target.id) };
}

/** Keeps the last result for each key as long as what it was made of stays the same. */
function remembering<Made>(): (key: string, from: readonly unknown[], make: () => Made) => Made {
  const kept = new Map<string, { from: readonly unknown[]; made: Made }>();
  return (key, from, make) => {
    const known = kept.get(key);
    if (known?.from.every((part, index) => Object.is(part, from[index]))) return known.made;
    const made = make();
    kept.set(key, { from, made });
    return made;
  };
}

export function nodeDrawer(): (state: State) => Drawn[] {
  const nodes = remembering<NodeDrawn>();
  const groups = remembering<GroupDrawn>();
  return (state) => {
    const document = documentOf(state);
    return [
      ...document.groups.map((group) => {
        const selected = state.selected.has(group.id);
        return groups(group.id, [group, selected], () => drawGroup(group, selected));
      }),
      ...[...document.nodes.values()].map((node) => {
        const [selected, size] = [state.selected.has(node.id), state.sizes.get(node.id)];
        return nodes(node.id, [node, selected, size, state.catalogue], () => ({
          id: node.id,
          type: "node" as const,
          position: node.position,
          data: { node },
          selected,
          ariaLabel: titleOf(state.catalogue, node),
          ...(size ? { measured: size } : {}),
        }));
      }),
    ];
  };
}

function drawGroup(group: Group, selected: boolean): GroupDrawn {
  const { width, height } = group;
  return {
    id: group.id,
    type: "group-frame",
    position: { x: group.x, y: group.y },
    data: { group },
    selected,
    width,
    height,
    measured: { width, height },
    zIndex: -1,
    dragHandle: ".graph-group-title",
    ariaLabel: group.title,
    // What lies in the group, and the canvas between, stay within reach.
    style: { pointerEvents: "none" },
  };
}

export function linkDrawer(): (state: State) => LinkDrawn[] {
  const links = remembering<LinkDrawn>();
  return (state) => {
    const document = documentOf(state);
    return document.links.map((link) => {
      const color = linkColor(state.catalogue, document, link);
      const selected = state.selectedLinks.has(link.id);
      return links(String(link.id), [link, color, selected], () => ({
        id: String(link.id),
        type: "link" as const,
        source: link.from,
        target: link.to,
        sourceHandle: outputHandle(link.output),
        targetHandle: inputHandle(link.input),
        reconnectable: "target" as const,
        selected,
        data: { color },
      }));
    });
  };
}

function linkColor(catalogue: Catalogue, document: GraphDocument, link: Link): string {
  return typeColor(outputType(catalogue, document, link.from, link.output));
}

let indexed: { links: readonly Link[]; fed: ReadonlyMap<string, string> } | null = null;

/** The inputs of a node that links feed, one to a line: a text, so that it stays equal while nothing changes. */
export function fedInputs(state: State, id: string): string {
  const { links } = documentOf(state);
  if (indexed?.links !== links) {
    const fed = new Map<string, string>();
    for (const link of links) fed.set(link.to, `${fed.get(link.to) ?? ""}${link.input}\n`);
    indexed = { links, fed };
  }
  return indexed.fed.get(id) ?? "";
}
