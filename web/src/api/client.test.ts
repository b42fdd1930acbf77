import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { connection, returns, told } from "../connection/connection";
import { ask, call } from "./client";
import { ApiError, LostError } from "./problem";

const answer = (status: number, body: unknown, type = "application/json") =>
  Promise.resolve(new Response(JSON.stringify(body), { status, headers: { "Content-Type": type } }));

beforeEach(() => {
  told("answers");
});
afterEach(() => {
  vi.unstubAllGlobals();
});

test("an answer is read with whole seeds", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response('{"seed":18446744073709551615}')));
  expect(await ask("v1/jobs")).toEqual({ seed: 18446744073709551615n });
});

test("what is wrong is told field by field", async () => {
  const problems = [{ field: "request.steps", rule: "is too much", value: 1 }];
  vi.stubGlobal("fetch", () => answer(400, { error: { message: "no", code: "bad_request", problems } }));
  const error: unknown = await call("v1/jobs").catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({
    status: 400,
    code: "bad_request",
    message: "no",
    problems: [{ rule: "is too much" }],
  });
  expect(connection.get()).toBe("answers");
});

test("a server that is gone is noticed, and so is its return", async () => {
  const before = returns.get();
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("failed")));
  await expect(call("v1/jobs")).rejects.toBeInstanceOf(LostError);
  expect(connection.get()).toBe("lost");
  vi.stubGlobal("fetch", () => answer(502, "", "text/html"));
  await expect(call("v1/jobs")).rejects.toBeInstanceOf(LostError);
  vi.stubGlobal("fetch", () => answer(200, {}));
  await call("v1/jobs");
  expect([connection.get(), returns.get()]).toEqual(["answers", before + 1]);
});

test("a server's own refusal is no lost connection", async () => {
  vi.stubGlobal("fetch", () => answer(503, { error: { message: "draining", code: "unavailable" } }));
  await expect(call("v1/jobs")).rejects.toBeInstanceOf(ApiError);
  expect(connection.get()).toBe("answers");
});

test("a key is asked for", async () => {
  vi.stubGlobal("fetch", () =>
    answer(401, { error: { message: "an API key is needed", code: "unknown_client" } }),
  );
  await expect(call("v1/jobs")).rejects.toMatchObject({ status: 401 });
  expect(connection.get()).toBe("wants-key");
});
