import { lazy, Suspense, type ComponentType } from "react";

import { useJobFeed } from "../jobs/useJobFeed";
import { useSay } from "../language/say";
import { MeasureTab } from "../measure/MeasureTab";
import { StudioTab } from "../studio/StudioTab";
import { SystemTab } from "../system/SystemTab";
import { ConnectionBanner } from "./ConnectionBanner";
import { KeyDialog } from "./KeyDialog";
import { Preferences } from "./Preferences";
import { QueueBanner } from "./QueueBanner";
import { RoomBoundary } from "./RoomBoundary";
import { useRoom, type Room } from "./route";
import { Tabs } from "./Tabs";
import { useStrayDrops } from "./useStrayDrops";

// The canvas is the heaviest part, and most visits never open it.
const GraphTab = lazy(async () => ({ default: (await import("../graph/GraphTab")).GraphTab }));

const SHOWN: Record<Room, ComponentType> = {
  studio: StudioTab,
  graph: GraphTab,
  measure: MeasureTab,
  system: SystemTab,
};

/** The frame around whichever room is shown. */
export function App() {
  const say = useSay();
  const room = useRoom();
  useJobFeed();
  useStrayDrops();
  const Shown = SHOWN[room];
  return (
    <div className="shell">
      <a
        className="skip"
        href="#content"
        onClick={(event) => {
          // The address after # names rooms here.
          event.preventDefault();
          document.getElementById("content")?.focus();
        }}
      >
        {say("shell.skip")}
      </a>
      <header className="bar">
        <span className="brand">Calotype</span>
        <Tabs />
        <Preferences />
      </header>
      <ConnectionBanner />
      <QueueBanner />
      <main id="content" tabIndex={-1} className={`content content-${room}`}>
        <RoomBoundary key={room}>
          <Suspense fallback={<p className="quiet">{say("shell.loading")}</p>}>
            <Shown />
          </Suspense>
        </RoomBoundary>
      </main>
      <KeyDialog />
    </div>
  );
}
