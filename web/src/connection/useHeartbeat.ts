/** While the server does not answer, ask whether it does again. */

import { useEffect } from "react";

import { call } from "../api/client";
import { connection } from "./connection";
import { useStore } from "./store";

const EVERY_MS = 2000;

/** Needs no key, so it says nothing about keys; what is shown is asked for again once it answers. */
export async function knock(): Promise<void> {
  try {
    await call("healthz");
  } catch {
    // The call has told the connection.
  }
}

export function useHeartbeat(): void {
  const state = useStore(connection);
  useEffect(() => {
    if (state !== "lost") return;
    const timer = setInterval(() => void knock(), EVERY_MS);
    const at_once = () => void knock();
    window.addEventListener("online", at_once);
    return () => {
      clearInterval(timer);
      window.removeEventListener("online", at_once);
    };
  }, [state]);
  useEffect(() => {
    const noticed = () => void knock();
    window.addEventListener("offline", noticed);
    return () => {
      window.removeEventListener("offline", noticed);
    };
  }, []);
}
