/** The session for components, and parts of its state that they follow. */
import { createContext, useContext, useSyncExternalStore } from "react";

import type { Session } from "../session";
import type { State } from "../state";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("outside of a graph's room");
  return session;
}

/** A part of the state. A component is drawn again only when its part is another one, so `select` makes nothing new. */
export function useSelected<Part>(select: (state: State) => Part): Part {
  const { state } = useSession();
  return useSyncExternalStore(state.subscribe, () => select(state.get()));
}
