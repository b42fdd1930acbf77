/** What the graph's room asks the server for. Knows nothing of state. */
import { addressOf, ask, call } from "../../api/client";
import { ApiError, LostError } from "../../api/problem";
import type { ApiPrompt } from "../model/api-format";
import { readCatalogue, type Catalogue } from "../model/catalogue";
import { asText, isList, isObject, type Json, type JsonObject } from "../model/json";
import type { Carried } from "../model/opening";
import { readFailure, readNodeErrors, readPictures, readRefusal, type Picture } from "./messages";
import type { Ending, Found, Problem } from "./run-state";

export async function askCatalogue(): Promise<Catalogue> {
  return readCatalogue(await ask<Json>("object_info"));
}

const OWN_SIDES: Readonly<Record<string, number>> = { emoji: 128, sdxl: 1024, "sdxl-refiner": 1024 };
export const USUAL_SIDE = 512;

/** The side of the pictures that the deployment's first model was made for. */
export async function askSide(): Promise<number> {
  const { defaults, workers } = await ask<JsonObject>("calotype/system");
  const name = isObject(defaults) ? defaults.model : undefined;
  const models = (isList(workers) ? workers : []).flatMap((worker) =>
    isObject(worker) && isList(worker.models) ? worker.models.filter(isObject) : [],
  );
  const architecture = asText(models.find((model) => model.name === name)?.architecture);
  return OWN_SIDES[architecture] ?? USUAL_SIDE;
}

export interface Asked {
  readonly accepted: boolean;
  readonly problems: readonly Problem[];
}

/** Asks for a run under an id of our own, so that its first message is known whenever it comes, and it can be asked for again. */
export async function askForRun(
  id: string,
  client: string,
  prompt: ApiPrompt,
  workflow: JsonObject,
): Promise<Asked> {
  const extra = { extra_pnginfo: { workflow } };
  const body = { prompt, client_id: client, prompt_id: id, extra_data: extra };
  try {
    const answer = await ask<JsonObject>("prompt", { method: "POST", body });
    return { accepted: true, problems: readNodeErrors(answer.node_errors) };
  } catch (error) {
    if (error instanceof LostError) throw error;
    return { accepted: false, problems: whyNot(error) };
  }
}

function whyNot(error: unknown): Problem[] {
  const said = error instanceof ApiError ? readRefusal(error.body as Json) : [];
  if (said.length > 0) return said;
  const message = error instanceof Error ? error.message : String(error);
  return [{ node: null, input: null, message, details: "" }];
}

export async function askToStop(id: string): Promise<void> {
  await call("interrupt", { method: "POST", body: { prompt_id: id } });
}

export async function askToForget(ids: readonly string[]): Promise<void> {
  await call("queue", { method: "POST", body: { delete: ids } });
}

/** Keeps a picture on the server; returns the name by which graphs call it. */
export async function askToKeep(file: File): Promise<string> {
  const form = new FormData();
  form.set("image", file);
  const answer = await ask<JsonObject>("upload/image", { method: "POST", body: form });
  const folder = asText(answer.subfolder);
  return folder ? `${folder}/${asText(answer.name)}` : asText(answer.name);
}

/** What a picture carries: the server reads every format in which programs hide it. */
export function askCarried(picture: Blob): Promise<Carried> {
  const form = new FormData();
  form.set("image", picture, "picture");
  return ask<Carried>("calotype/carried", { method: "POST", body: form });
}

export async function askPictureOfJob(id: string, index: number): Promise<Blob> {
  return (await call(`v1/jobs/${encodeURIComponent(id)}/pictures/${index}`)).blob();
}

export function pictureAddress(picture: Picture): string {
  const query = new URLSearchParams({ ...picture });
  return addressOf(`view?${query.toString()}`).href;
}

/** The address of an input picture by the name that graphs use, with its folder. */
export function inputAddress(name: string): string {
  const cut = name.lastIndexOf("/");
  return pictureAddress({
    filename: name.slice(cut + 1),
    subfolder: name.slice(0, Math.max(cut, 0)),
    type: "input",
  });
}

/** What became of runs while nobody listened: where they are in the queue, or how they ended. */
export async function askAbout(ids: readonly string[]): Promise<Found[]> {
  if (ids.length === 0) return [];
  const queue = await ask<JsonObject>("queue");
  const [running, waiting] = [queuedIds(queue.queue_running), queuedIds(queue.queue_pending)];
  return Promise.all(
    ids.map(async (id) => {
      if (running.has(id)) return { id, state: "running" as const, pictures: new Map(), problem: null };
      if (waiting.has(id)) return { id, state: "waiting" as const, pictures: new Map(), problem: null };
      return readHistory(id, await ask<JsonObject>(`history/${encodeURIComponent(id)}`));
    }),
  );
}

function queuedIds(entries: Json | undefined): Set<string> {
  return new Set(
    (isList(entries) ? entries : []).map((entry) => asText(isList(entry) ? entry[1] : undefined)),
  );
}

export function readHistory(id: string, history: JsonObject): Found {
  const entry = isObject(history[id]) ? history[id] : {};
  const outputs = Object.entries(isObject(entry.outputs) ? entry.outputs : {});
  const pictures = new Map(outputs.map(([node, output]) => [node, readPictures(output)]));
  const status = isObject(entry.status) ? entry.status : {};
  const failure = messageOf(status, "execution_error");
  const state: Ending = status.status_str === "success" ? "success" : failure ? "failed" : "cancelled";
  return { id, state, pictures, problem: failure && readFailure(failure) };
}

function messageOf(status: JsonObject, type: string): JsonObject | null {
  for (const message of isList(status.messages) ? status.messages : []) {
    if (isList(message) && message[0] === type && isObject(message[1])) return message[1];
  }
  return null;
}
