import { expect, test } from "vitest";

import { addressOfRoom, roomOf } from "./route";

test.each([
  ["/studio", "/", "/#/studio"],
  ["/graph/", "/", "/#/graph"],
  ["/graph/some/where?x=1", "/", "/#/graph/some/where"],
  ["/graph#/measure", "/", "/#/measure"],
  ["/page/system/x/", "/page/", "/page/#/system/x"],
  ["/", "/", null],
  ["/#/graph", "/", null],
  ["/page/", "/page/", null],
  ["/index.html", "/", null],
  ["/studiox", "/", null],
])("%s on a page at %s is %s", (address, page, expected) => {
  const origin = "http://here";
  expect(addressOfRoom(new URL(address, origin), new URL(page, origin))).toBe(expected);
});

test("an unknown room is the studio", () => {
  expect(["#/graph/x", "#/nowhere", ""].map(roomOf)).toEqual(["graph", "studio", "studio"]);
});
