import { useRef } from "react";

import { useSay } from "../../language/say";
import * as deeds from "./deeds";
import { useSession } from "./session-context";

/** A disclosure, so that every entry is a plain button. */
export function FileMenu({ pickFile }: { pickFile: () => void }) {
  const say = useSay();
  const session = useSession();
  const menu = useRef<HTMLDetailsElement>(null);
  const entries: readonly [string, () => void][] = [
    [say("graph.first"), () => void session.openFirst()],
    [
      say("graph.empty"),
      () => {
        deeds.openEmpty(session);
      },
    ],
    [say("graph.open"), pickFile],
    [
      say("graph.save"),
      () => {
        deeds.save(session);
      },
    ],
    [
      say("graph.export"),
      () => {
        deeds.exportApi(session);
      },
    ],
  ];
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  return (
    // Leaving the menu closes it; nothing is done by it.
    <details
      ref={menu}
      className="graph-menu"
      onBlur={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) close();
      }}
    >
      <summary>{say("graph.file")}</summary>
      <div>
        {entries.map(([label, act]) => (
          <button
            key={label}
            type="button"
            onClick={() => {
              close();
              act();
            }}
          >
            {label}
          </button>
        ))}
      </div>
    </details>
  );
}
