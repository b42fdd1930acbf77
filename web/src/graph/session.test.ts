/** The graph's room while the server is slow, or gone for a while. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { stringify } from "../api/json";
import type { Session } from "./session";
import { OBJECT_INFO } from "./testing/object-info";

// A session lives as long as its page and listens to the connection; this one is not to be that of other tests.
vi.resetModules();
const { connection, told } = await import("../connection/connection");
const { createSession, startSession } = await import("./session");
vi.resetModules();

class Socket {
  static last: Socket;
  onopen?: () => void;
  onmessage?: (event: { data: string }) => void;
  constructor() {
    Socket.last = this;
  }
}

/** What was asked for, as paths. */
const asked: string[] = [];
/** The ids under which runs were handed in. */
const handedIn: string[] = [];
let answerRun: () => Promise<Response>;

function answer(body: unknown): Response {
  return new Response(stringify(body), { headers: { "Content-Type": "application/json" } });
}

function server(address: URL, init: RequestInit): Promise<Response> {
  const path = address.pathname;
  asked.push(path);
  if (path === "/object_info") return Promise.resolve(answer(OBJECT_INFO));
  if (path !== "/prompt") return Promise.resolve(answer({}));
  handedIn.push((JSON.parse(init.body as string) as { prompt_id: string }).prompt_id);
  return answerRun();
}

async function atWork(): Promise<Session> {
  const session = createSession();
  startSession(session);
  await session.ready;
  await vi.waitFor(() => {
    expect(Socket.last.onmessage).toBeDefined();
  });
  return session;
}

function sayQueued(count: number): void {
  const data = { status: { exec_info: { queue_remaining: count } } };
  Socket.last.onmessage?.({ data: JSON.stringify({ type: "status", data }) });
}

const runOf = (session: Session) => session.state.get().run;

beforeEach(() => {
  sessionStorage.clear();
  asked.length = handedIn.length = 0;
  vi.stubGlobal("fetch", server);
  vi.stubGlobal("WebSocket", Socket);
});

afterEach(() => {
  vi.unstubAllGlobals();
});

test("a run on its way is not taken for one that was cancelled when others' runs end", async () => {
  let arrive: (response: Response) => void = () => undefined;
  answerRun = () =>
    new Promise((resolve) => {
      arrive = resolve;
    });
  const session = await atWork();
  const running = session.run(1);
  sayQueued(0);
  arrive(answer({ prompt_id: "x" }));
  await running;
  expect(asked).not.toContain("/queue");
  expect(runOf(session)).toMatchObject({ unfinished: handedIn, ending: null });
});

test("a run that could not be sent is sent under the same id when the server is back", async () => {
  answerRun = () => Promise.reject(new TypeError("failed"));
  const session = await atWork();
  const running = session.run(1);
  await vi.waitFor(() => {
    expect(connection.get()).toBe("lost");
  });
  expect(runOf(session)).toMatchObject({ unfinished: handedIn, ending: null });
  answerRun = () => Promise.resolve(answer({ prompt_id: "x" }));
  await vi.waitFor(() => {
    told("lost");
    told("answers");
    expect(handedIn).toHaveLength(2);
  });
  await running;
  expect(handedIn[1]).toBe(handedIn[0]);
  expect([...runOf(session).problems]).toEqual([]);
});

test("what is cancelled on its way is stopped once the server has it", async () => {
  let arrive: (response: Response) => void = () => undefined;
  answerRun = () =>
    new Promise((resolve) => {
      arrive = resolve;
    });
  const session = await atWork();
  const running = session.run(3);
  await session.cancel(false);
  expect(runOf(session)).toMatchObject({ unfinished: [], ending: "cancelled" });
  arrive(answer({ prompt_id: "x" }));
  await running;
  expect(handedIn).toHaveLength(1);
  expect(asked).toContain(`/v1/jobs/${handedIn[0]}/cancel`);
});
