/**
 * What the server says over the socket and in its answers, read into plain types. Anything unexpected is no message.
 * Knows nothing of what is done with it.
 */
import { parse } from "../../api/json";
import { asText, isList, isObject, type Json, type JsonObject } from "../model/json";
import type { Problem } from "./run-state";

export interface Picture {
  readonly filename: string;
  readonly subfolder: string;
  readonly type: string;
}

export type Message =
  | { readonly type: "status"; readonly queued: number }
  | { readonly type: "start" | "success" | "interrupted"; readonly prompt: string }
  | { readonly type: "cached"; readonly prompt: string; readonly nodes: readonly string[] }
  | { readonly type: "executing"; readonly prompt: string; readonly node: string | null }
  | {
      readonly type: "progress";
      readonly prompt: string;
      readonly node: string;
      readonly value: number;
      readonly maximum: number;
    }
  | {
      readonly type: "executed";
      readonly prompt: string;
      readonly node: string;
      readonly pictures: readonly Picture[];
    }
  | { readonly type: "error"; readonly prompt: string; readonly problem: Problem };

const READERS: Readonly<Record<string, (prompt: string, data: JsonObject) => Message>> = {
  status: (_prompt, data) => ({ type: "status", queued: queueLength(data) }),
  execution_start: (prompt) => ({ type: "start", prompt }),
  execution_cached: (prompt, { nodes }) => ({
    type: "cached",
    prompt,
    nodes: isList(nodes) ? nodes.map(asText) : [],
  }),
  executing: (prompt, { node }) => ({ type: "executing", prompt, node: asText(node ?? "") || null }),
  progress: (prompt, { node, value, max }) => ({
    type: "progress",
    prompt,
    node: asText(node),
    value: Number(value),
    maximum: Number(max),
  }),
  executed: (prompt, { node, output }) => ({
    type: "executed",
    prompt,
    node: asText(node),
    pictures: readPictures(output),
  }),
  execution_success: (prompt) => ({ type: "success", prompt }),
  execution_interrupted: (prompt) => ({ type: "interrupted", prompt }),
  execution_error: (prompt, data) => ({ type: "error", prompt, problem: readFailure(data) }),
};

export function readMessage(text: string): Message | null {
  const json = parse(text) as Json;
  if (!isObject(json) || !isObject(json.data)) return null;
  return READERS[asText(json.type)]?.(asText(json.data.prompt_id), json.data) ?? null;
}

function queueLength(data: JsonObject): number {
  const status = isObject(data.status) ? data.status : {};
  const info = isObject(status.exec_info) ? status.exec_info : {};
  return Number(info.queue_remaining ?? 0);
}

export function readPictures(output: Json | undefined): Picture[] {
  const images = isObject(output) && isList(output.images) ? output.images : [];
  return images.filter(isObject).map((image) => ({
    filename: asText(image.filename),
    subfolder: asText(image.subfolder),
    type: asText(image.type),
  }));
}

/** What stopped a run. The short names of Python's own errors say something, those of packages are in the trace. */
export function readFailure(data: JsonObject): Problem {
  const [type, message] = [asText(data.exception_type), asText(data.exception_message)];
  return {
    node: asText(data.node_id) || null,
    input: null,
    message: message && type.includes(".") ? message : [type, message].filter(Boolean).join(": "),
    details: isList(data.traceback) ? data.traceback.map(asText).join("") : "",
  };
}

/** Every problem in the answer to a graph that cannot run. */
export function readRefusal(body: Json): Problem[] {
  if (!isObject(body)) return [];
  const problems = readNodeErrors(body.node_errors);
  const error = isObject(body.error) ? body.error : null;
  // The summary says nothing where the nodes have said it all.
  if (!error || problems.length > 0) return problems;
  const extra = isObject(error.extra_info) ? error.extra_info : {};
  const node = asText(extra.node_id) || null;
  return [{ node, input: null, message: asText(error.message), details: asText(error.details) }];
}

export function readNodeErrors(nodeErrors: Json | undefined): Problem[] {
  return Object.entries(isObject(nodeErrors) ? nodeErrors : {}).flatMap(([node, described]) => {
    const errors = isObject(described) && isList(described.errors) ? described.errors : [];
    return errors.filter(isObject).map((error) => {
      const extra = isObject(error.extra_info) ? error.extra_info : {};
      const input = asText(extra.input_name) || null;
      return { node, input, message: asText(error.message), details: asText(error.details) };
    });
  });
}

const PREVIEW = 1;
const PREVIEW_KINDS: Readonly<Record<number, string>> = { 1: "image/jpeg", 2: "image/png" };

/** A preview's picture; null if the bytes are something else. */
export function readPreview(bytes: ArrayBuffer): Blob | null {
  if (bytes.byteLength <= 8) return null;
  const view = new DataView(bytes);
  const kind = PREVIEW_KINDS[view.getUint32(4)];
  return view.getUint32(0) === PREVIEW && kind ? new Blob([bytes.slice(8)], { type: kind }) : null;
}
