import { cleanup, fireEvent, render } from "@testing-library/react";
import { ReactFlowProvider } from "@xyflow/react";
import { afterEach, expect, test, vi } from "vitest";

import { createSession } from "../session";
import { SessionContext } from "./session-context";
import { useKeys } from "./useKeys";

const HELPERS = { room: { current: null }, pickFile: () => undefined, showKeys: () => undefined };

function Keys() {
  useKeys(HELPERS);
  return null;
}

afterEach(cleanup);

test("a key that is held down runs once", () => {
  const run = vi.fn(() => Promise.resolve());
  render(
    <ReactFlowProvider>
      <SessionContext value={{ ...createSession(), run }}>
        <Keys />
      </SessionContext>
    </ReactFlowProvider>,
  );
  for (const repeat of [false, true, true])
    fireEvent.keyDown(window, { key: "Enter", ctrlKey: true, repeat });
  expect(run).toHaveBeenCalledTimes(1);
});
