/**
 * A graph from whatever a user drops: a file of either format, or a picture that carries one. Knows nothing of the
 * screen.
 */
import { parse } from "../../api/json";
import { isApiPrompt, readApi } from "./api-format";
import type { Catalogue } from "./catalogue";
import { type GraphDocument } from "./document";
import { isEditorFormat, readEditor } from "./editor-reading";
import { isObject, type Json } from "./json";
import { arranged } from "./layout";
import { isPng, pngTexts } from "./picture-text";

export class NoGraphError extends Error {
  constructor(readonly why: "picture" | "json" | "text") {
    super(why);
    this.name = "NoGraphError";
  }
}

export function openBytes(catalogue: Catalogue, bytes: Uint8Array, name: string): GraphDocument {
  const title = name.replace(/\.(json|png)$/i, "");
  if (!isPng(bytes)) return { ...openText(catalogue, new TextDecoder().decode(bytes)), name: title };
  const texts = pngTexts(bytes);
  const text = texts.get("workflow") ?? texts.get("prompt");
  if (text === undefined) throw new NoGraphError("picture");
  return { ...openText(catalogue, text), name: title };
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
