import { useEffect, useMemo, useRef, useState, type DragEvent } from "react";

import { useSay } from "../../language/say";
import { Canvas } from "./Canvas";
import { Crumbs } from "./Crumbs";
import { openFile, openMade } from "./deeds";
import { KeysDialog } from "./KeysDialog";
import { Palette } from "./Palette";
import { Problems } from "./Problems";
import { SelectionBar } from "./SelectionBar";
import { useSelected, useSession } from "./session-context";
import { Toolbar } from "./Toolbar";
import { useKeys } from "./useKeys";

function carriesFiles(event: DragEvent): boolean {
  return event.dataTransfer.types.includes("Files");
}

/** The canvas and everything around it. */
export function Room() {
  const say = useSay();
  const session = useSession();
  const ready = useSelected((state) => state.catalogue.size > 0);
  const room = useRef<HTMLElement>(null);
  const keys = useRef<HTMLDialogElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const [dropping, setDropping] = useState(false);
  const helpers = useMemo(
    () => ({ room, pickFile: () => picker.current?.click(), showKeys: () => keys.current?.showModal() }),
    [],
  );
  useKeys(helpers);
  useAddressed();
  if (!ready) return <p className="graph-loading quiet">{say("graph.loading")}</p>;
  return (
    // Files can be picked from the menu as well.
    <section
      ref={room}
      className="graph-room"
      aria-label={say("graph.title")}
      onDragOver={(event) => {
        if (!carriesFiles(event)) return;
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={(event) => {
        if (!(event.relatedTarget instanceof Node) || !event.currentTarget.contains(event.relatedTarget))
          setDropping(false);
      }}
      onDrop={(event) => {
        setDropping(false);
        const [file] = event.dataTransfer.files;
        if (!file) return;
        event.preventDefault();
        void openFile(session, say, file);
      }}
    >
      <h1 className="hidden-text">{say("graph.title")}</h1>
      <Toolbar {...helpers} />
      <div className="graph-stage">
        <Canvas />
        <Crumbs />
        <SelectionBar />
        <Problems />
        <Notice />
        {dropping && <div className="graph-drop">{say("graph.drop")}</div>}
      </div>
      <Palette />
      <KeysDialog dialog={keys} />
      <input
        ref={picker}
        type="file"
        accept=".json,.png,.webp,.jpg,.jpeg,application/json,image/png,image/webp,image/jpeg"
        hidden
        aria-label={say("graph.open")}
        onChange={(event) => {
          const file = event.target.files?.[0];
          if (file) void openFile(session, say, file);
          event.target.value = "";
        }}
      />
    </section>
  );
}

const MADE = /^#\/graph\/([^/]+)\/(\d+)$/;

/** A picture that the address names is opened, once: what is edited afterwards is no longer that picture's graph. */
function useAddressed(): void {
  const session = useSession();
  const say = useSay();
  useEffect(() => {
    const look = () => {
      const [, job, index] = MADE.exec(window.location.hash) ?? [];
      if (job === undefined) return;
      window.history.replaceState(null, "", "#/graph");
      void openMade(session, say, job, Number(index));
    };
    look();
    window.addEventListener("hashchange", look);
    return () => {
      window.removeEventListener("hashchange", look);
    };
  }, [session, say]);
}

/** What was just refused, until it is closed or something else is told. */
function Notice() {
  const say = useSay();
  const { dispatch } = useSession();
  const notice = useSelected((state) => state.notice);
  return (
    <div className="graph-notice" role="alert" hidden={notice === null}>
      <span>{notice}</span>
      <button
        type="button"
        className="plain"
        aria-label={say("graph.dismiss")}
        onClick={() => {
          dispatch({ type: "notice", notice: null });
        }}
      >
        ×
      </button>
    </div>
  );
}
