/**
 * Calls to the server that serves the page. Knows nothing of what is asked.
 *
 * Paths are relative ("v1/jobs"), so the page also works below a proxy's prefix. Every call tells `connection`
 * whether the server answered; the session's cookie goes along by itself.
 */

import { told } from "../connection/connection";
import { parse, stringify } from "./json";
import { apiError, LostError } from "./problem";

export interface Call {
  method?: "GET" | "POST" | "DELETE";
  /** Sent as JSON, or as a form where it is one. */
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export function addressOf(path: string): URL {
  return new URL(path, document.baseURI.split("#")[0]);
}

/** The answer, once it is known to be a good one. */
export async function call(path: string, options: Call = {}): Promise<Response> {
  const response = await reach(path, options);
  if (response.status === 401) {
    told("wants-key");
    throw apiError(401, await readable(response));
  }
  if (isGateway(response.status) && !isJson(response)) {
    // A proxy stands before a server that is gone.
    told("lost");
    throw new LostError(response.status);
  }
  told("answers");
  if (!response.ok) throw apiError(response.status, await readable(response));
  return response;
}

/** What the answer says. The caller says what it is: the server's specs are the source of these types. */

export async function ask<Answer>(path: string, options: Call = {}): Promise<Answer> {
  const response = await call(path, options);
  return parse(await response.text()) as Answer;
}

async function reach(path: string, options: Call): Promise<Response> {
  const { method = "GET", body, signal, headers = {} } = options;
  const all = new Headers(headers);
  if (body !== undefined && !(body instanceof FormData)) all.set("Content-Type", "application/json");
  try {
    return await fetch(addressOf(path), {
      method,
      headers: all,
      ...(signal ? { signal } : {}),
      ...(body === undefined ? {} : { body: body instanceof FormData ? body : stringify(body) }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    told("lost");
    throw new LostError(error);
  }
}

async function readable(response: Response): Promise<unknown> {
  try {
    return parse(await response.text());
  } catch {
    return null;
  }
}

function isGateway(status: number): boolean {
  return status === 502 || status === 503 || status === 504;
}

function isJson(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("application/json") ?? false;
}
