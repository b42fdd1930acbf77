/** An answer of the server: asked for at first sight, again when it comes back, and again when wanted. */

import { useCallback, useEffect, useState } from "react";

import { connection, returns } from "../connection/connection";
import { useStore } from "../connection/store";

export interface Asked<Answer> {
  /** The last good answer. */
  answer: Answer | null;
  error: unknown;
  again: () => void;
}

export function useAsked<Answer>(ask: () => Promise<Answer>, every_ms?: number): Asked<Answer> {
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [times, setTimes] = useState(0);
  const back = useStore(returns);
  const answers = useStore(connection) === "answers";
  const again = useCallback(() => {
    setTimes((before) => before + 1);
  }, []);
  useEffect(() => {
    let wanted = true;
    ask().then(
      (found) => {
        if (!wanted) return;
        setAnswer(found);
        setError(null);
      },
      (reason: unknown) => {
        if (wanted) setError(reason);
      },
    );
    return () => {
      wanted = false;
    };
  }, [ask, times, back]);
  useEffect(() => {
    if (every_ms === undefined || !answers) return;
    const timer = setInterval(() => {
      if (!document.hidden) again();
    }, every_ms);
    return () => {
      clearInterval(timer);
    };
  }, [every_ms, answers, again]);
  return { answer, error, again };
}
