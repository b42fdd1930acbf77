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
import { splitRunId } from "../model/subgraphs";
import type { Session } from "../session";
import { documentOf, sizesOfWhole, wholeOf } from "../state";

function selectedNodes({ state }: Session): string[] {
  const { selected } = state.get();
  return [...documentOf(state.get()).nodes.keys()].filter((id) => selected.has(id));
}

/** Shows what is inside a node, if it stands for a subgraph. */
export function enter({ state, dispatch }: Session, id: string): void {
  const { path } = state.get();
  const { subgraphs } = wholeOf(state.get());
  if (subgraphs.has(documentOf(state.get()).nodes.get(id)?.type ?? ""))
    dispatch({ type: "entered", path: [...path, id] });
}

/** Selects a node by the id that a run knows it by; true if it was not among those shown. */
export function goTo({ state, dispatch }: Session, runId: string, id: string): boolean {
  const path = runId === id ? [] : splitRunId(runId).path;
  const elsewhere = path.join(":") !== state.get().path.join(":");
  if (elsewhere) dispatch({ type: "entered", path });
  dispatch({ type: "selected", ids: new Set([id]), links: new Set() });
  return elsewhere;
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
  const { subgraphs } = wholeOf(state.get());
  return selected.size === 0 ? null : copied(catalogue, documentOf(state.get()), selected, subgraphs);
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
    dispatch({ type: "opened", document: openText(state.get().kinds, text) });
    return true;
  } catch {
    return false;
  }
}

export function openEmpty({ dispatch }: Session): void {
  dispatch({ type: "opened", document: EMPTY_DOCUMENT });
}

export function openFile(session: Session, say: Say, file: File): Promise<void> {
  return orNotice(session, say, file.name, () => session.open(file));
}

/** A picture that was made here, by where it is kept. */
export async function openMade(session: Session, say: Say, job: string, index: number): Promise<void> {
  await session.ready;
  await orNotice(session, say, say("graph.open.made"), () => session.openMade(job, index));
}

async function orNotice(
  { dispatch }: Session,
  say: Say,
  name: string,
  open: () => Promise<void>,
): Promise<void> {
  try {
    await open();
  } catch (error) {
    const notice =
      error instanceof NoGraphError
        ? say(`graph.open.${error.why}`, { name })
        : say("graph.open.failed", { name, why: error instanceof Error ? error.message : String(error) });
    dispatch({ type: "notice", notice });
  }
}

export function save({ state }: Session): void {
  const document = wholeOf(state.get());
  const written = writeEditor(state.get().catalogue, document, sizesOfWhole(state.get()));
  download(`${document.name || "graph"}.json`, stringify(written, 2));
}

export function exportApi({ state }: Session): void {
  const document = wholeOf(state.get());
  download(`${document.name || "graph"}.api.json`, stringify(writeApi(state.get().catalogue, document), 2));
}

function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = Object.assign(window.document.createElement("a"), { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
}
