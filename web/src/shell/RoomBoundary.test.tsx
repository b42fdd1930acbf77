import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { RoomBoundary } from "./RoomBoundary";

afterEach(cleanup);

function Missing(): never {
  throw new TypeError("Failed to fetch dynamically imported module");
}

test("a room that fails is replaced by what to do, and everything around it stays", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  const drawn = render(
    <>
      <p>the frame</p>
      <RoomBoundary>
        <Missing />
      </RoomBoundary>
    </>,
  );
  expect(drawn.getByText("the frame")).toBeDefined();
  expect(drawn.getByRole("button", { name: "Reload the page" })).toBeDefined();
});
