import { Component, type ReactNode } from "react";

import { connection } from "../connection/connection";
import { useStore } from "../connection/store";
import { useSay } from "../language/say";

/** Keeps the frame where a room cannot be shown: its program did not arrive, or something in it went wrong. */
export class RoomBoundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override render(): ReactNode {
    return this.state.failed ? <Failed /> : this.props.children;
  }
}

/** A browser does not ask again for a program that it did not get; a reload does. */
function Failed() {
  const say = useSay();
  const lost = useStore(connection) === "lost";
  return (
    <div className="notice room-failed" role="alert">
      <p>{say("shell.room.failed")}</p>
      <button
        type="button"
        disabled={lost}
        onClick={() => {
          window.location.reload();
        }}
      >
        {say("shell.reload")}
      </button>
    </div>
  );
}
