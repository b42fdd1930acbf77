/** Which room is shown: the first part of the address after `#/`; what follows belongs to the room. */

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
