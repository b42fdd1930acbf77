import { ReactFlowProvider } from "@xyflow/react";
import "@xyflow/react/dist/style.css";

import "./canvas.css";
import "./graph.css";
import { createSession, startSession, type Session } from "./session";
import { Room } from "./view/Room";
import { SessionContext } from "./view/session-context";

let session: Session | null = null;

/** One session for the life of the page: other rooms may be visited while a graph runs. */
function theSession(): Session {
  if (session === null) {
    session = createSession();
    startSession(session);
  }
  return session;
}

export function GraphTab() {
  return (
    <SessionContext value={theSession()}>
      <ReactFlowProvider>
        <Room />
      </ReactFlowProvider>
    </SessionContext>
  );
}
