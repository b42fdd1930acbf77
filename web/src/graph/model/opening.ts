/**
 * A graph from whatever a user drops: a file of either format, or a picture that carries one. Knows nothing of the
 * screen.
 */
import { parse } from "../../api/json";
import { isApiPrompt, readApi } from "./api-format";
import type { Catalogue } from "./catalogue";
import { type GraphDocument } from "./document";
import { isEditorFormat } from "./editor-reading";
import { isObject, type Json } from "./json";
import { arranged } from "./layout";
import { readEditor } from "./subgraph-reading";

export class NoGraphError extends Error {
  constructor(readonly why: "picture" | "json" | "text") {
    super(why);
    this.name = "NoGraphError";
  }
}

/** Pictures begin in one of these ways: PNG, WebP, JPEG. What they carry the server reads. */
const PICTURES = ["\x89PNG", "RIFF", "\xff\xd8"];

export function isPicture(bytes: Uint8Array): boolean {
  const start = String.fromCharCode(...bytes.subarray(0, 4));
  return PICTURES.some((mark) => start.startsWith(mark));
}

/** What a picture carries, as text under these names. */
export interface Carried {
  readonly prompt?: string | null;
  readonly workflow?: string | null;
}

/** As the editor left it if that can be read, or else what ran. */
export function openCarried(catalogue: Catalogue, { workflow, prompt }: Carried): GraphDocument {
  const texts = [workflow, prompt].filter((text) => typeof text === "string");
  for (const text of texts) {
    try {
      return openText(catalogue, text);
    } catch (error) {
      if (!(error instanceof NoGraphError)) throw error;
    }
  }
  throw new NoGraphError("picture");
}

export function nameOfFile(name: string): string {
  return name.replace(/\.(json|png|webp|jpe?g)$/i, "");
}

export function openText(catalogue: Catalogue, text: string): GraphDocument {
  let json: Json;
  try {
    json = parse(text) as Json;
  } catch {
    throw new NoGraphError("text");
  }
  return openJson(catalogue, json);
}

export function openJson(catalogue: Catalogue, json: Json): GraphDocument {
  if (isEditorFormat(json)) return readEditor(catalogue, json);
  if (isApiPrompt(json)) return arranged(catalogue, readApi(catalogue, json), new Map());
  // What was posted to the server as it is: {"prompt": {...}}.
  if (isObject(json) && json.prompt !== undefined && json.prompt !== json)
    return openJson(catalogue, json.prompt);
  throw new NoGraphError("json");
}
