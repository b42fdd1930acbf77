/**
 * The socket on which the server tells how a run goes. Comes back by itself when it is lost. Knows nothing of what
 * the messages mean to anybody.
 */
import { addressOf } from "../../api/client";
import { readMessage, readPreview, type Message } from "./messages";

export interface Listener {
  readonly opened: () => void;
  readonly message: (message: Message) => void;
  readonly preview: (picture: Blob) => void;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;

export function listen(client: string, listener: Listener): () => void {
  let socket: WebSocket | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let wait = FIRST_WAIT_MS;
  let stopped = false;

  const open = () => {
    socket = new WebSocket(address(client));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      wait = FIRST_WAIT_MS;
      listener.opened();
    };
    socket.onmessage = (event: MessageEvent<unknown>) => {
      deliver(event.data, listener);
    };
    socket.onclose = () => {
      if (stopped) return;
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    };
  };

  open();
  return () => {
    stopped = true;
    if (timer !== null) clearTimeout(timer);
    socket?.close();
  };
}

function deliver(data: unknown, listener: Listener): void {
  if (data instanceof ArrayBuffer) {
    const picture = readPreview(data);
    if (picture) listener.preview(picture);
  } else if (typeof data === "string") {
    const message = readMessage(data);
    if (message) listener.message(message);
  }
}

function address(client: string): URL {
  const url = addressOf(`ws?clientId=${encodeURIComponent(client)}`);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}
