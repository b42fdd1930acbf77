import { useState } from "react";

import { readQueueHealth } from "../api/system";
import { useSay } from "../language/say";
import { useAsked } from "../parts/useAsked";

const EVERY_MS = 10_000;

/** Says in every room that the queue accepts no jobs, or that its database was damaged. */
export function QueueBanner() {
  const say = useSay();
  const { answer } = useAsked(readQueueHealth, EVERY_MS);
  const [closed, setClosed] = useState<readonly string[]>([]);
  const refusal = answer?.refusal;
  const notices = (answer?.notices ?? []).filter((notice) => !closed.includes(notice));
  return (
    <div role="status" aria-live="polite">
      {refusal && <div className="banner">{say("shell.queue.refuses", { why: refusal })}</div>}
      {notices.map((notice) => (
        <div key={notice} className="banner">
          <span>{say("shell.queue.notice", { what: notice })}</span>
          <button
            type="button"
            onClick={() => {
              setClosed((before) => [...before, notice]);
            }}
          >
            {say("shell.close")}
          </button>
        </div>
      ))}
    </div>
  );
}
