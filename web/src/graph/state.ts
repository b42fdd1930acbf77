/**
 * The whole state of the graph's room, and the one function that changes it. Knows nothing of React, sockets or
 * storage; they look on.
 */
import { EMPTY_CATALOGUE, type Catalogue } from "./model/catalogue";
import { EMPTY_DOCUMENT, type GraphDocument, type Point, type Size } from "./model/document";
import { changeGroup, moveNodes, removeNodes, disconnect } from "./model/edits";
import * as history from "./model/history";
import type { End } from "./model/search";
import { levelAt, passable, sameKinds, withLevel, withSubgraphs, type Path } from "./model/subgraphs";
import { heard, NO_RUN, type RunState } from "./run/run-state";
import type { Message } from "./run/messages";

export interface PaletteRequest {
  /** On the canvas; null is beside what it is joined to, or in the middle. */
  readonly place: Point | null;
  /** On the screen. */
  readonly near: Point;
  readonly end: End | null;
}

export interface State {
  /** What the server has. */
  readonly kinds: Catalogue;
  /** The same, with the subgraphs of the graph. */
  readonly catalogue: Catalogue;
  /** The whole graph. */
  readonly history: history.History<GraphDocument>;
  /** The nodes entered one after the other to the subgraph that is shown; none is the top. */
  readonly path: Path;
  /** Nodes and groups. */
  readonly selected: ReadonlySet<string>;
  readonly selectedLinks: ReadonlySet<number>;
  /** As drawn. */
  readonly sizes: ReadonlyMap<string, Size>;
  readonly run: RunState;
  /** Where a node is to be added, and what it is to be joined to. */
  readonly palette: PaletteRequest | null;
  /** Something to tell, such as why a link was refused. */
  readonly notice: string | null;
  /** Counts up whenever all of the graph should come into view. */
  readonly shownAnew: number;
}

export const FIRST_STATE: State = {
  kinds: EMPTY_CATALOGUE,
  catalogue: EMPTY_CATALOGUE,
  history: history.begin(EMPTY_DOCUMENT),
  path: [],
  selected: new Set(),
  selectedLinks: new Set(),
  sizes: new Map(),
  run: NO_RUN,
  palette: null,
  notice: null,
  shownAnew: 0,
};

export type Action =
  | { readonly type: "catalogue"; readonly catalogue: Catalogue }
  | { readonly type: "restored" | "opened"; readonly document: GraphDocument }
  /** What is inside a node is shown, or the top again. */
  | { readonly type: "entered"; readonly path: Path }
  /** Any edit of what is shown; edits in a row with the same tag are undone together. */
  | {
      readonly type: "edit";
      readonly edit: (document: GraphDocument) => GraphDocument;
      readonly tag?: string;
    }
  | { readonly type: "pasted"; readonly document: GraphDocument; readonly ids: ReadonlySet<string> }
  /** A change of the whole that nobody made by hand, such as the next seed. */
  | { readonly type: "amended"; readonly document: GraphDocument }
  | { readonly type: "moved"; readonly places: ReadonlyMap<string, Point> }
  | { readonly type: "removed" | "sealed" | "undone" | "redone" | "show-all" }
  | { readonly type: "selected"; readonly ids: ReadonlySet<string>; readonly links: ReadonlySet<number> }
  | { readonly type: "measured"; readonly sizes: ReadonlyMap<string, Size> }
  | { readonly type: "palette"; readonly palette: PaletteRequest | null }
  | { readonly type: "notice"; readonly notice: string | null }
  | { readonly type: "run"; readonly change: (run: RunState) => RunState }
  | { readonly type: "message"; readonly message: Message };

/** The whole graph, whatever part of it is shown. */
export function wholeOf(state: State): GraphDocument {
  return state.history.present;
}

/** What is shown: the graph, or the subgraph that was entered. */
export function documentOf(state: State): GraphDocument {
  return levelAt(state.history.present, state.path);
}

/** As drawn, for what is written of the whole: inside a subgraph they are not about its nodes. */
export function sizesOfWhole(state: State): State["sizes"] {
  return state.path.length === 0 ? state.sizes : new Map();
}

const NOTHING = new Set<never>();

export function reduce(state: State, action: Action): State {
  const next = step(state, action);
  return next.history === state.history && next.kinds === state.kinds ? next : settled(state, next);
}

/** What follows from another graph or other kinds of node: how subgraphs look, and how far in one still is. */
function settled(before: State, next: State): State {
  const { subgraphs } = wholeOf(next);
  const path = passable(wholeOf(next), next.path);
  const kept = path === next.path ? next : entered(next, path);
  if (subgraphs === wholeOf(before).subgraphs && next.kinds === before.kinds) return kept;
  const catalogue = withSubgraphs(next.kinds, subgraphs);
  const same = next.kinds === before.kinds && sameKinds(catalogue, before.catalogue, subgraphs);
  return same ? kept : { ...kept, catalogue };
}

// eslint-disable-next-line complexity -- one line per action
function step(state: State, action: Action): State {
  switch (action.type) {
    case "catalogue":
      return { ...state, kinds: action.catalogue };
    case "entered":
      return entered(state, passable(wholeOf(state), action.path));
    case "restored":
      return { ...anew(state), history: history.begin(action.document), run: state.run };
    case "opened":
      return { ...anew(state), history: history.record(state.history, action.document) };
    case "edit":
      return edited(state, action.edit(documentOf(state)), action.tag);
    case "pasted":
      return { ...edited(state, action.document), selected: action.ids, selectedLinks: NOTHING };
    case "amended":
      return { ...state, history: history.amend(state.history, action.document) };
    case "moved":
      return edited(state, moved(documentOf(state), action.places), "move");
    case "removed": {
      const document = disconnect(removeNodes(documentOf(state), state.selected), state.selectedLinks);
      return { ...edited(state, document), selected: NOTHING, selectedLinks: NOTHING };
    }
    case "sealed":
      return withHistory(state, history.seal(state.history));
    case "undone":
      return withHistory(state, history.undo(state.history));
    case "redone":
      return withHistory(state, history.redo(state.history));
    case "show-all":
      return { ...state, shownAnew: state.shownAnew + 1 };
    case "selected":
      return { ...state, selected: action.ids, selectedLinks: action.links };
    case "measured":
      return { ...state, sizes: new Map([...state.sizes, ...action.sizes]) };
    case "palette":
      return { ...state, palette: action.palette, notice: null };
    case "notice":
      return { ...state, notice: action.notice };
    case "run":
      return { ...state, run: action.change(state.run) };
    case "message":
      return withRun(state, heard(state.run, action.message));
  }
}

/** Another graph has the canvas: nothing of the last one's selection, sizes and runs is about it, nor what was told. */
function anew(state: State): State {
  return { ...entered(state, []), notice: null, run: { ...NO_RUN, queued: state.run.queued } };
}

/** Other nodes are shown, and nothing that was selected or measured is about them. */
function entered(state: State, path: Path): State {
  return {
    ...state,
    path,
    selected: NOTHING,
    selectedLinks: NOTHING,
    sizes: new Map(),
    palette: null,
    shownAnew: state.shownAnew + 1,
  };
}

function edited(state: State, document: GraphDocument, tag?: string): State {
  const whole = withLevel(wholeOf(state), state.path, document);
  return withHistory(state, history.record(state.history, whole, tag ?? null));
}

function withHistory(state: State, next: history.History<GraphDocument>): State {
  return next === state.history ? state : { ...state, history: next };
}

function withRun(state: State, run: RunState): State {
  return run === state.run ? state : { ...state, run };
}

function moved(document: GraphDocument, places: ReadonlyMap<string, Point>): GraphDocument {
  const groups = document.groups.filter((group) => places.has(group.id));
  return groups.reduce(
    (now, group) => changeGroup(now, group.id, places.get(group.id) ?? {}),
    moveNodes(document, places),
  );
}
