/**
 * What buttons and keys do, once for both. Knows nothing of either.
 */
import { stringify } from "../../api/json";
import type { Say } from "../../language/say";
import { writeApi } from "../model/api-format";
import { copied, pasted } from "../model/clipboard";
import { EMPTY_DOCUMENT, type Mode, type Point } from "../model/document";
import { addGroup, boxAround, toggleCollapsed, toggleMode } from "../model/edits";
import { writeEditor } from "../model/editor-writing";
import { arranged } from "../model/layout";
import { NoGraphError, openText } from "../model/opening";
import type { Session } from "../session";
import { documentOf } from "../state";

function selectedNodes({ state }: Session): string[] {
  const { selected } = state.get();
  return [...documentOf(state.get()).nodes.keys()].filter((id) => selected.has(id));
}

export function arrange(session: Session): void {
  const { catalogue, sizes, selected } = session.state.get();
  const only = selected.size > 1 ? selected : undefined;
  session.dispatch({ type: "edit", edit: (document) => arranged(catalogue, document, sizes, only) });
  if (!only) session.dispatch({ type: "show-all" });
}

export function group(session: Session, say: Say): void {
  const ids = selectedNodes(session);
  const box = boxAround(documentOf(session.state.get()), ids, session.state.get().sizes);
  if (box)
    session.dispatch({ type: "edit", edit: (document) => addGroup(document, say("graph.group.new"), box) });
}

export function setMode(session: Session, mode: Mode): void {
  const ids = selectedNodes(session);
  session.dispatch({ type: "edit", edit: (document) => toggleMode(document, ids, mode) });
}

export function fold(session: Session): void {
  const ids = selectedNodes(session);
  session.dispatch({ type: "edit", edit: (document) => toggleCollapsed(document, ids) });
}

export function selectAll({ state, dispatch }: Session): void {
  const document = documentOf(state.get());
  const ids = [...document.nodes.keys(), ...document.groups.map((one) => one.id)];
  dispatch({ type: "selected", ids: new Set(ids), links: new Set() });
}

/** What is selected, as text for the clipboard; null if nothing is. */
export function copyText({ state }: Session): string | null {
  const { catalogue, selected } = state.get();
  return selected.size === 0 ? null : copied(catalogue, documentOf(state.get()), selected);
}

const BESIDE = 40;

export function duplicate(session: Session): void {
  const text = copyText(session);
  const { state } = session;
  const document = documentOf(state.get());
  const corners = selectedNodes(session).flatMap((id) => document.nodes.get(id)?.position ?? []);
  if (text === null || corners.length === 0) return;
  const [x, y] = [Math.min(...corners.map((one) => one.x)), Math.min(...corners.map((one) => one.y))];
  paste(session, text, { x: x + BESIDE, y: y + BESIDE });
}

/** Adds copied nodes at a place, or opens a whole graph; false if the text is neither. */
export function paste({ state, dispatch }: Session, text: string, at: Point): boolean {
  const { catalogue } = state.get();
  const result = pasted(catalogue, documentOf(state.get()), text, at);
  if (result) {
    dispatch({ type: "pasted", ...result });
    return true;
  }
  try {
    dispatch({ type: "opened", document: openText(catalogue, text) });
    return true;
  } catch {
    return false;
  }
}

export function openEmpty({ dispatch }: Session): void {
  dispatch({ type: "opened", document: EMPTY_DOCUMENT });
}

export async function openFile(session: Session, say: Say, file: File): Promise<void> {
  try {
    await session.open(file);
  } catch (error) {
    if (!(error instanceof NoGraphError)) throw error;
    session.dispatch({ type: "notice", notice: say(`graph.open.${error.why}`, { name: file.name }) });
  }
}

export function save({ state }: Session): void {
  const { catalogue, sizes } = state.get();
  const document = documentOf(state.get());
  download(`${document.name || "graph"}.json`, stringify(writeEditor(catalogue, document, sizes), 2));
}

export function exportApi({ state }: Session): void {
  const document = documentOf(state.get());
  download(`${document.name || "graph"}.api.json`, stringify(writeApi(state.get().catalogue, document), 2));
}

function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = Object.assign(window.document.createElement("a"), { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
}
