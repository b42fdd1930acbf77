/** The keys of the graph's room. Typing into a field is left alone, but for the few that mean the same there. */
import { useReactFlow } from "@xyflow/react";
import { useEffect, type RefObject } from "react";

import { useSay, type Say } from "../../language/say";
import type { Point } from "../model/document";
import type { Session } from "../session";
import * as deeds from "./deeds";
import { useSession } from "./session-context";

export interface KeyHelpers {
  readonly room: RefObject<HTMLElement | null>;
  readonly pickFile: () => void;
  readonly showKeys: () => void;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

type Deed = (session: Session, say: Say, helpers: KeyHelpers) => void;

const ANYWHERE: Readonly<Record<string, Deed>> = {
  "ctrl+enter": (session) => void session.run(1),
  "ctrl+s": deeds.save,
  "ctrl+o": (_session, _say, { pickFile }) => {
    pickFile();
  },
};

const ON_THE_CANVAS: Readonly<Record<string, Deed>> = {
  "ctrl+z": ({ dispatch }) => {
    dispatch({ type: "undone" });
  },
  "ctrl+shift+z": ({ dispatch }) => {
    dispatch({ type: "redone" });
  },
  "ctrl+y": ({ dispatch }) => {
    dispatch({ type: "redone" });
  },
  "ctrl+a": deeds.selectAll,
  "ctrl+d": deeds.duplicate,
  "ctrl+g": deeds.group,
  "ctrl+m": (session) => {
    deeds.setMode(session, "muted");
  },
  "ctrl+b": (session) => {
    deeds.setMode(session, "bypassed");
  },
  "alt+c": deeds.fold,
  delete: ({ dispatch }) => {
    dispatch({ type: "removed" });
  },
  backspace: ({ dispatch }) => {
    dispatch({ type: "removed" });
  },
  l: deeds.arrange,
  f: ({ dispatch }) => {
    dispatch({ type: "show-all" });
  },
  a: openPalette,
  "/": openPalette,
  "?": (_session, _say, { showKeys }) => {
    showKeys();
  },
};

function middleOf(room: HTMLElement | null): Point {
  const { left, top, width, height } = room?.getBoundingClientRect() ?? new DOMRect();
  return { x: left + width / 2, y: top + height / 3 };
}

function openPalette({ dispatch }: Session, _say: Say, { room }: KeyHelpers): void {
  const { x, y } = middleOf(room.current);
  dispatch({ type: "palette", palette: { near: { x: x - 160, y: y / 1.5 }, place: null, end: null } });
}

function spelled(event: KeyboardEvent): string {
  const parts = [
    event.ctrlKey || event.metaKey ? "ctrl" : "",
    event.altKey ? "alt" : "",
    // A shifted sign such as ? is a key of its own.
    event.shiftKey && event.key.length === 1 && /[a-z]/i.test(event.key) ? "shift" : "",
    event.key.toLowerCase(),
  ];
  return parts.filter(Boolean).join("+");
}

export function useKeys(helpers: KeyHelpers): void {
  const session = useSession();
  const say = useSay();
  const flow = useReactFlow();
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (window.document.querySelector("dialog[open], .graph-floating")) return;
      const key = spelled(event);
      const deed = ANYWHERE[key] ?? (isTyping(event.target) ? undefined : ON_THE_CANVAS[key]);
      if (!deed) return;
      event.preventDefault();
      // A key that is held down runs, saves and opens once.
      if (!event.repeat || !(key in ANYWHERE)) deed(session, say, helpers);
    };
    const copy = (event: ClipboardEvent) => {
      const text = isTyping(event.target) ? null : deeds.copyText(session);
      if (text === null || window.getSelection()?.isCollapsed === false) return;
      event.clipboardData?.setData("text/plain", text);
      event.preventDefault();
      if (event.type === "cut") session.dispatch({ type: "removed" });
    };
    const paste = (event: ClipboardEvent) => {
      const data = isTyping(event.target) ? null : event.clipboardData;
      if (!data) return;
      const [file] = data.files;
      if (file) void deeds.openFile(session, say, file);
      else
        deeds.paste(
          session,
          data.getData("text/plain"),
          flow.screenToFlowPosition(middleOf(helpers.room.current)),
        );
      event.preventDefault();
    };
    window.addEventListener("keydown", pressed);
    window.addEventListener("copy", copy);
    window.addEventListener("cut", copy);
    window.addEventListener("paste", paste);
    return () => {
      window.removeEventListener("keydown", pressed);
      window.removeEventListener("copy", copy);
      window.removeEventListener("cut", copy);
      window.removeEventListener("paste", paste);
    };
  }, [session, say, helpers, flow]);
}
