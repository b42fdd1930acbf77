import { cleanup, createEvent, fireEvent, render } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";

import { useStrayDrops } from "./useStrayDrops";

afterEach(cleanup);

function Page() {
  useStrayDrops();
  return <p>beside it</p>;
}

/** Whether the browser is kept from what it does by itself. */
function kept(over: Element, kind: "dragOver" | "drop", types: string[]): boolean {
  const event = createEvent[kind](over, { dataTransfer: { types } });
  fireEvent(over, event);
  return event.defaultPrevented;
}

test("a file that is let go beside its place does not take the page away; text goes where it is let go", () => {
  const place = render(<Page />).getByText("beside it");
  expect(kept(place, "dragOver", ["Files"])).toBe(true);
  expect(kept(place, "drop", ["Files"])).toBe(true);
  expect(kept(place, "drop", ["text/plain"])).toBe(false);
});
