import { useEffect, useRef, useState, type SyntheticEvent } from "react";

import { ApiError } from "../api/problem";
import { beginSession } from "../api/session";
import { connection } from "../connection/connection";
import { useStore } from "../connection/store";
import { useSay } from "../language/say";

/** Asks for the API key when the server wants one. */
export function KeyDialog() {
  const wanted = useStore(connection) === "wants-key";
  return wanted ? <Asking /> : null;
}

function Asking() {
  const say = useSay();
  const dialog = useRef<HTMLDialogElement>(null);
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const use = async (event: SyntheticEvent) => {
    event.preventDefault();
    try {
      await beginSession(key.trim());
    } catch (error) {
      if (!(error instanceof ApiError)) return;
      setProblem(error.status === 401 ? say("shell.key.wrong") : error.message);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby="key-title"
      onCancel={(event) => {
        // Nothing can be done without one.
        event.preventDefault();
      }}
    >
      <form onSubmit={(event) => void use(event)} className="stack">
        <h2 id="key-title">{say("shell.key.title")}</h2>
        <p>{say("shell.key.why")}</p>
        <label className="field">
          <span>{say("shell.key.label")}</span>
          <input
            type="password"
            autoComplete="current-password"
            required
            value={key}
            aria-invalid={problem !== null}
            aria-describedby={problem === null ? undefined : "key-wrong"}
            onChange={(event) => {
              setKey(event.target.value);
            }}
          />
        </label>
        {problem !== null && (
          <p id="key-wrong" className="problem" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" className="primary">
          {say("shell.key.use")}
        </button>
      </form>
    </dialog>
  );
}
