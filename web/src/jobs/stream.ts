/**
 * Server-sent events that come back by themselves. Knows nothing of what they say.
 *
 * A browser's own EventSource gives up for good when a server that restarts answers with an error.
 */

import { addressOf } from "../api/client";
import { parse } from "../api/json";

const AGAIN_MS = 2000;

export interface Heard {
  on: Record<string, (data: unknown) => void>;
  opened?: () => void;
  broken?: () => void;
}

/** Listens until the answer is called. */
export function listen(path: string, heard: Heard): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const open = () => {
    source = new EventSource(addressOf(path));
    source.onopen = () => heard.opened?.();
    source.onerror = () => {
      heard.broken?.();
      if (source?.readyState === EventSource.CLOSED) timer = setTimeout(open, AGAIN_MS);
    };
    for (const [name, tell] of Object.entries(heard.on)) {
      source.addEventListener(name, (event) => {
        // The browser's own complaints have the same name as the server's, and say nothing.
        if (event instanceof MessageEvent) tell(parse(event.data as string));
      });
    }
  };
  open();
  return () => {
    clearTimeout(timer);
    source?.close();
  };
}
