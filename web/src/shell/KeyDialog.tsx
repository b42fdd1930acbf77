import { useEffect, useRef, useState, type SyntheticEvent } from "react";

import { call } from "../api/client";
import { ApiError } from "../api/problem";
import { connection } from "../connection/connection";
import { currentKey, forgetKey, keepKey } from "../connection/key";
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
  const [remember, setRemember] = useState(false);
  const [wrong, setWrong] = useState(() => currentKey() !== null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const use = async (event: SyntheticEvent) => {
    event.preventDefault();
    keepKey(key.trim(), remember);
    try {
      await call("v1/deployment");
    } catch (error) {
      if (!(error instanceof ApiError)) return;
      forgetKey();
      setWrong(true);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby="key-title"
      onCancel={(event) => {
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
            autoComplete="off"
            required
            value={key}
            aria-invalid={wrong}
            aria-describedby={wrong ? "key-wrong" : undefined}
            onChange={(event) => {
              setKey(event.target.value);
            }}
          />
        </label>
        {wrong && (
          <p id="key-wrong" className="problem" role="alert">
            {say("shell.key.wrong")}
          </p>
        )}
        <label className="check">
          <input
            type="checkbox"
            checked={remember}
            onChange={(event) => {
              setRemember(event.target.checked);
            }}
          />
          <span>{say("shell.key.remember")}</span>
        </label>
        <button type="submit" className="primary">
          {say("shell.key.use")}
        </button>
      </form>
    </dialog>
  );
}
