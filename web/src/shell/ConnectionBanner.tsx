import { connection } from "../connection/connection";
import { useStore } from "../connection/store";
import { knock, useHeartbeat } from "../connection/useHeartbeat";
import { useSay } from "../language/say";

/** Says so while the server does not answer. */
export function ConnectionBanner() {
  const say = useSay();
  const state = useStore(connection);
  useHeartbeat();
  return (
    <div role="status" aria-live="polite">
      {state === "lost" && (
        <div className="banner">
          <span>{say("shell.lost")}</span>
          <button type="button" onClick={() => void knock()}>
            {say("shell.retry")}
          </button>
        </div>
      )}
    </div>
  );
}
