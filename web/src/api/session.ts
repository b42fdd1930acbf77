/** Who we are to the server. The key itself is not kept here: the server gives a cookie that no script can read. */

import { ask, call } from "./client";

export interface Session {
  client: string;
  admin: boolean;
  /** Whether the server has API keys at all. */
  keys: boolean;
}

export function currentSession(): Promise<Session> {
  return ask<Session>("calotype/session");
}

export function beginSession(key: string): Promise<Session> {
  return ask<Session>("calotype/session", { method: "POST", body: { key } });
}

export async function endSession(): Promise<void> {
  await call("calotype/session", { method: "DELETE" });
}
