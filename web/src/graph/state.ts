/**
 * The whole state of the graph's room, and the one function that changes it. Knows nothing of React, sockets or
 * storage; they look on.
 */
import { EMPTY_CATALOGUE, type Catalogue } from "./model/catalogue";
import { EMPTY_DOCUMENT, type GraphDocument, type Point, type Size } from "./model/document";
import { changeGroup, moveNodes, removeNodes, disconnect } from "./model/edits";
import * as history from "./model/history";
import type { End } from "./model/search";
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
  readonly catalogue: Catalogue;
  readonly history: history.History<GraphDocument>;
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
  catalogue: EMPTY_CATALOGUE,
  history: history.begin(EMPTY_DOCUMENT),
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
  /** Any edit of the document; edits in a row with the same tag are undone together. */
  | {
      readonly type: "edit";
      readonly edit: (document: GraphDocument) => GraphDocument;
      readonly tag?: string;
    }
  | { readonly type: "pasted"; readonly document: GraphDocument; readonly ids: ReadonlySet<string> }
  /** A change that nobody made by hand, such as the next seed. */
  | { readonly type: "amended"; readonly document: GraphDocument }
  | { readonly type: "moved"; readonly places: ReadonlyMap<string, Point> }
  | { readonly type: "removed" | "sealed" | "undone" | "redone" | "show-all" }
  | { readonly type: "selected"; readonly ids: ReadonlySet<string>; readonly links: ReadonlySet<number> }
  | { readonly type: "measured"; readonly sizes: ReadonlyMap<string, Size> }
  | { readonly type: "palette"; readonly palette: PaletteRequest | null }
  | { readonly type: "notice"; readonly notice: string | null }
  | { readonly type: "run"; readonly change: (run: RunState) => RunState }
  | { readonly type: "message"; readonly message: Message };

export function documentOf(state: State): GraphDocument {
  return state.history.present;
}

const NOTHING = new Set<never>();

// eslint-disable-next-line complexity -- one line per action
export function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "catalogue":
      return { ...state, catalogue: action.catalogue };
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

/** Another graph has the canvas: nothing of the last one's selection, sizes and runs is about it. */
function anew(state: State): State {
  return {
    ...state,
    selected: NOTHING,
    selectedLinks: NOTHING,
    sizes: new Map(),
    run: { ...NO_RUN, queued: state.run.queued },
    shownAnew: state.shownAnew + 1,
  };
}

function edited(state: State, document: GraphDocument, tag?: string): State {
  return withHistory(state, history.record(state.history, document, tag ?? null));
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
