/**
 * Which room is shown: the first part of the address after `#/`; what follows belongs to the room. The server also
 * answers with the page at `/studio`, `/graph/some/where` and so on, which mean `/#/studio`, `/#/graph/some/where`.
 */

import { useSyncExternalStore } from "react";

export const ROOMS = ["studio", "graph", "measure", "system"] as const;

export type Room = (typeof ROOMS)[number];

export function roomOf(hash: string): Room {
  const name = hash.replace(/^#\/?/, "").split("/")[0];
  return ROOMS.find((room) => room === name) ?? "studio";
}

function subscribe(changed: () => void): () => void {
  window.addEventListener("hashchange", changed);
  return () => {
    window.removeEventListener("hashchange", changed);
  };
}

export function useRoom(): Room {
  return useSyncExternalStore(subscribe, () => roomOf(window.location.hash));
}

export function goTo(room: Room): void {
  window.location.hash = `/${room}`;
}

/** The address below the page's own for one such as `/graph/some/where`; null for all others. */
export function addressOfRoom(address: URL, page: URL): string | null {
  const below = address.pathname.startsWith(page.pathname)
    ? address.pathname.slice(page.pathname.length)
    : "";
  const path = below.replace(/\/+$/, "");
  if (!ROOMS.some((room) => room === path.split("/")[0])) return null;
  // What stands after # was chosen on the page, so it counts.
  return page.pathname + (address.hash.length > 1 ? address.hash : `#/${path}`);
}

/** Moves from `/graph` to `/#/graph`, so that links to `#/studio` lead to the other rooms of the same page. */
export function enterRoom(): void {
  const page = new URL(".", document.baseURI);
  const room = addressOfRoom(new URL(window.location.href), page);
  if (room !== null) window.history.replaceState(null, "", room);
}
