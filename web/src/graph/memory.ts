/**
 * What a reload must not lose: the graph, kept for the browser, and who this tab is to the server with its unfinished
 * runs, kept for the tab. Knows nothing of when to keep.
 */
import { parse, stringify } from "../api/json";
import type { Catalogue } from "./model/catalogue";
import type { GraphDocument } from "./model/document";
import { isEditorFormat } from "./model/editor-reading";
import { writeEditor } from "./model/editor-writing";
import { asText, isList, isObject, type Json } from "./model/json";
import { NO_RUN, type NodeRun, type RunState } from "./run/run-state";
import { wholeOf, type State } from "./state";
import { readEditor } from "./model/subgraph-reading";

const GRAPH = "calotype.graph";
const CLIENT = "calotype.graph.client";
const RUN = "calotype.graph.run";

export function keepGraph(state: State): void {
  const document = wholeOf(state);
  const graph = writeEditor(state.catalogue, document);
  try {
    localStorage.setItem(GRAPH, stringify({ name: document.name, graph }));
  } catch {
    // A full or forbidden storage costs the reload, not the work.
  }
}

export function keptGraph(catalogue: Catalogue): GraphDocument | null {
  const kept = read(localStorage, GRAPH);
  if (!isObject(kept) || kept.graph === undefined || !isEditorFormat(kept.graph)) return null;
  return { ...readEditor(catalogue, kept.graph), name: asText(kept.name) };
}

export function keepRun(run: RunState): void {
  const { unfinished, current, nodes, pictures } = run;
  try {
    sessionStorage.setItem(
      RUN,
      stringify({ unfinished, current, nodes: [...nodes], pictures: [...pictures] }),
    );
  } catch {
    // As above.
  }
}

/** Written by `keepRun` alone, so what has its outline is taken for it. */
export function keptRun(): RunState {
  const kept = read(sessionStorage, RUN);
  if (!isObject(kept) || !isList(kept.unfinished) || !isList(kept.nodes) || !isList(kept.pictures))
    return NO_RUN;
  return {
    ...NO_RUN,
    unfinished: kept.unfinished.map(asText),
    current: asText(kept.current) || null,
    nodes: new Map(kept.nodes as unknown as [string, NodeRun][]),
    pictures: new Map(kept.pictures as unknown as RunState["pictures"]),
  };
}

/** This tab's name towards the server. A reload keeps it, so the server keeps telling us. */
export function clientName(): string {
  const known = sessionStorage.getItem(CLIENT);
  if (known !== null) return known;
  const name = newId();
  sessionStorage.setItem(CLIENT, name);
  return name;
}

/** A random UUID. `crypto.randomUUID` exists on https and localhost only, and deployments are reached by address. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

function read(storage: Storage, name: string): Json | null {
  try {
    return parse(storage.getItem(name) ?? "null") as Json;
  } catch {
    return null;
  }
}
