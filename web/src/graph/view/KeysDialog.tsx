import type { RefObject } from "react";

import { useSay } from "../../language/say";
import type { Word } from "../../language/words";

const KEYS: readonly [Word, string][] = [
  ["graph.keys.run", "Ctrl+Enter"],
  ["graph.keys.add", "A  /"],
  ["graph.keys.undo", "Ctrl+Z  Ctrl+Y"],
  ["graph.keys.clipboard", "Ctrl+C  Ctrl+X  Ctrl+V  Ctrl+D"],
  ["graph.keys.all", "Ctrl+A"],
  ["graph.keys.box", "Shift"],
  ["graph.keys.move", "← ↑ → ↓"],
  ["graph.keys.delete", "Delete"],
  ["graph.keys.modes", "Ctrl+M  Ctrl+B  Alt+C"],
  ["graph.keys.group", "Ctrl+G"],
  ["graph.keys.arrange", "L"],
  ["graph.keys.fit", "F"],
  ["graph.keys.files", "Ctrl+O  Ctrl+S"],
];

export function KeysDialog({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  const say = useSay();
  return (
    <dialog ref={dialog} aria-label={say("graph.keys.title")} className="graph-keys">
      <header>
        <h2>{say("graph.keys.title")}</h2>
        <button
          type="button"
          className="plain"
          aria-label={say("graph.dismiss")}
          onClick={() => dialog.current?.close()}
        >
          ×
        </button>
      </header>
      <dl>
        {KEYS.map(([what, keys]) => (
          <div key={what}>
            <dt>{say(what)}</dt>
            <dd>
              {keys.split("  ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
