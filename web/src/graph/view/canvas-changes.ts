/** What the canvas library reports, turned into actions. Knows nothing of how anything is drawn. */
import type { EdgeChange, NodeChange } from "@xyflow/react";

import { changeGroup, changeNode } from "../model/edits";
import { nodesInside, type GraphDocument, type Point, type Size } from "../model/document";
import type { Session } from "../session";
import { documentOf, type State } from "../state";
import type { Drawn, LinkDrawn } from "./drawn";

/** Nodes that a dragged group takes along, with their distance from its corner. */
export type Carried = ReadonlyMap<string, { readonly group: string; readonly offset: Point }>;

export function carriedBy(state: State, group: string): Carried {
  const document = documentOf(state);
  const box = document.groups.find((one) => one.id === group);
  if (!box) return new Map();
  return new Map(
    nodesInside(document, box, state.sizes).flatMap((id) => {
      const node = document.nodes.get(id);
      if (!node) return [];
      return [[id, { group, offset: { x: node.position.x - box.x, y: node.position.y - box.y } }] as const];
    }),
  );
}

export function nodesChanged(
  session: Session,
  changes: readonly NodeChange<Drawn>[],
  carried: Carried,
): void {
  const places = new Map<string, Point>();
  const sizes = new Map<string, Size>();
  const selected = new Set(session.state.get().selected);
  let selecting = false;
  for (const change of changes) {
    if (change.type === "position" && change.position) places.set(change.id, change.position);
    else if (change.type === "dimensions" && change.dimensions) {
      if (change.resizing === undefined) sizes.set(change.id, change.dimensions);
      else resized(session, change.id, change.dimensions);
    } else if (change.type === "select") {
      selecting = true;
      if (change.selected) selected.add(change.id);
      else selected.delete(change.id);
    }
  }
  const { dispatch, state } = session;
  if (places.size > 0) dispatch({ type: "moved", places: withCarried(places, carried) });
  if (sizes.size > 0) dispatch({ type: "measured", sizes });
  if (selecting) dispatch({ type: "selected", ids: selected, links: state.get().selectedLinks });
}

function withCarried(places: ReadonlyMap<string, Point>, carried: Carried): ReadonlyMap<string, Point> {
  if (carried.size === 0) return places;
  const all = new Map(places);
  for (const [id, { group, offset }] of carried) {
    const corner = places.get(group);
    if (corner) all.set(id, { x: corner.x + offset.x, y: corner.y + offset.y });
  }
  return all;
}

function resized({ dispatch }: Session, id: string, size: Size): void {
  const edit = (document: GraphDocument) =>
    document.nodes.has(id) ? changeNode(document, id, { size }) : changeGroup(document, id, size);
  dispatch({ type: "edit", edit, tag: `resize:${id}` });
}

export function linksChanged({ state, dispatch }: Session, changes: readonly EdgeChange<LinkDrawn>[]): void {
  const selections = changes.filter((change) => change.type === "select");
  if (selections.length === 0) return;
  const links = new Set(state.get().selectedLinks);
  for (const change of selections) {
    if (change.selected) links.add(Number(change.id));
    else links.delete(Number(change.id));
  }
  dispatch({ type: "selected", ids: state.get().selected, links });
}
