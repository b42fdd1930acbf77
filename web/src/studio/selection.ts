/** What the stage shows is said by the address: `#/studio/JOB/INDEX`, `#/studio/grid/ID`, or nothing: the newest. */

import { useSyncExternalStore } from "react";

export type Selection =
  { kind: "newest" } | { kind: "picture"; job: string; index: number } | { kind: "grid"; grid: string };

export function selectionOf(hash: string): Selection {
  const [room, first, second] = hash.replace(/^#\/?/, "").split("/");
  if (room !== "studio" || !first) return { kind: "newest" };
  if (first === "grid" && second) return { kind: "grid", grid: second };
  return { kind: "picture", job: first, index: Number(second ?? 0) || 0 };
}

export function addressOfSelection(selection: Selection): string {
  if (selection.kind === "grid") return `#/studio/grid/${selection.grid}`;
  if (selection.kind === "picture") return `#/studio/${selection.job}/${selection.index}`;
  return "#/studio";
}

export function select(selection: Selection): void {
  // Looking through pictures is no trail worth walking back one by one.
  window.history.replaceState(null, "", addressOfSelection(selection));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function subscribe(changed: () => void): () => void {
  window.addEventListener("hashchange", changed);
  return () => {
    window.removeEventListener("hashchange", changed);
  };
}

export function useSelection(): Selection {
  return selectionOf(useSyncExternalStore(subscribe, () => window.location.hash));
}
