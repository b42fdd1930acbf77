import { act, render } from "@testing-library/react";
import { ReactFlowProvider } from "@xyflow/react";
import { beforeEach, expect, test, vi } from "vitest";

import { CATALOGUE } from "../testing/object-info";
import { EMPTY_DOCUMENT, type GraphDocument } from "../model/document";
import { addNode, connect, setValue } from "../model/edits";
import { asked } from "../run/run-state";
import { createSession } from "../session";
import { documentOf } from "../state";
import { Canvas } from "./Canvas";
import { SessionContext } from "./session-context";

const drawn: string[] = [];

// Every node draws its title, and nothing else does: the titles drawn are the nodes drawn.
vi.mock("./node/NodeTitle", () => ({
  NodeTitle: ({ id }: { id: string }) => {
    drawn.push(id);
    return null;
  },
}));

// What is in the fields is no matter here, and costs most of the time.
vi.mock("./node/Widget", () => ({ Widget: () => null }));

class NoObserver {
  observe(): void {
    /* Nothing has a size here. */
  }
  unobserve(): void {
    /* As above. */
  }
  disconnect(): void {
    /* As above. */
  }
}

beforeEach(() => {
  vi.stubGlobal("ResizeObserver", NoObserver);
});

function chain(length: number): GraphDocument {
  const kind = CATALOGUE.get("LoraLoader");
  if (!kind) throw new Error("LoraLoader");
  let document = EMPTY_DOCUMENT;
  for (let index = 0; index < length; index += 1) {
    document = addNode(document, kind, { x: index * 300, y: 0 });
    const ends = { from: String(index), output: 0, to: String(index + 1), input: "model" };
    if (index > 0) document = connect(CATALOGUE, document, ends);
  }
  return document;
}

const PATIENCE_MS = 60_000;

test("of 200 nodes only those are drawn again that changed", { timeout: PATIENCE_MS }, () => {
  const session = createSession();
  const { dispatch, state } = session;
  dispatch({ type: "catalogue", catalogue: CATALOGUE });
  dispatch({ type: "restored", document: chain(200) });
  render(
    <SessionContext value={session}>
      <ReactFlowProvider>
        <Canvas />
      </ReactFlowProvider>
    </SessionContext>,
  );
  expect(new Set(drawn).size).toBe(200);
  const drawnBy = (change: () => void): string[] => {
    drawn.length = 0;
    act(change);
    return [...new Set(drawn)].sort();
  };
  const say = (message: object) => () => {
    dispatch({ type: "message", message: { prompt: "p", ...message } as never });
  };
  dispatch({ type: "run", change: (run) => asked(run, "p") });
  expect(drawnBy(say({ type: "executing", node: "7" }))).toEqual(["7"]);
  expect(drawnBy(say({ type: "progress", node: "7", value: 1, maximum: 20 }))).toEqual([]);
  expect(drawnBy(say({ type: "progress", node: "7", value: 2, maximum: 20 }))).toEqual([]);
  expect(drawnBy(say({ type: "executing", node: "8" }))).toEqual(["7", "8"]);
  const edit = (change: (document: GraphDocument) => GraphDocument) => () => {
    dispatch({ type: "edit", edit: change });
  };
  expect(drawnBy(edit((document) => setValue(document, "3", "strength_model", 0.5)))).toEqual(["3"]);
  expect(
    drawnBy(() => {
      dispatch({ type: "moved", places: new Map([["4", { x: 5, y: 5 }]]) });
    }),
  ).toEqual(["4"]);
  expect(
    drawnBy(() => {
      dispatch({ type: "selected", ids: new Set(["5"]), links: new Set() });
    }),
  ).toEqual(["5"]);
  expect(documentOf(state.get()).nodes.size).toBe(200);
});
