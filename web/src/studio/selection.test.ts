import { expect, test } from "vitest";

import { addressOfSelection, selectionOf, type Selection } from "./selection";

test("an address says what is shown, and back", () => {
  const all: Selection[] = [
    { kind: "newest" },
    { kind: "picture", job: "abc", index: 3 },
    { kind: "grid", grid: "xyz" },
  ];
  for (const one of all) expect(selectionOf(addressOfSelection(one))).toEqual(one);
  expect(selectionOf("#/system/abc")).toEqual({ kind: "newest" });
  expect(selectionOf("")).toEqual({ kind: "newest" });
});
