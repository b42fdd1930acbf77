import { useState } from "react";

import { useSay, type Say } from "../../language/say";
import { titleOf } from "../model/document";
import { runningNode } from "../run/run-state";
import type { State } from "../state";
import { nodeMeant } from "./in-run";
import { useSelected, useSession } from "./session-context";

const MOST_RUNS = 99;

/** Runs and cancels, and says how it goes. */
export function RunBar() {
  const say = useSay();
  const session = useSession();
  const [times, setTimes] = useState(1);
  const unfinished = useSelected((state) => state.run.unfinished.length);
  const status = useSelected((state) => saidState(say, state));
  const outcome = useSelected((state) => state.run.ending);
  return (
    <div className="graph-run">
      <span className="graph-run-state" role="status" data-busy={unfinished > 0} data-outcome={outcome}>
        {status}
      </span>
      {unfinished > 0 && (
        <button type="button" onClick={() => void session.cancel(false)}>
          {say("graph.cancel")}
        </button>
      )}
      {unfinished > 1 && (
        <button type="button" onClick={() => void session.cancel(true)}>
          {say("graph.cancel.all")}
        </button>
      )}
      <input
        type="number"
        className="number"
        aria-label={say("graph.times")}
        title={say("graph.times")}
        min={1}
        max={MOST_RUNS}
        value={times}
        onChange={(event) => {
          setTimes(Math.min(MOST_RUNS, Math.max(1, Math.floor(Number(event.target.value)) || 1)));
        }}
      />
      <button type="button" className="primary" title="Ctrl+Enter" onClick={() => void session.run(times)}>
        {say("graph.run")}
      </button>
    </div>
  );
}

function saidState(say: Say, state: State): string {
  const { run } = state;
  const id = runningNode(run);
  const node = nodeMeant(state, id);
  if (run.unfinished.length > 0) {
    if (!node || id === null)
      return say("graph.state.waiting", { count: Math.max(run.queued, run.unfinished.length) });
    const { value = 0, maximum = 0 } = run.nodes.get(id) ?? {};
    const title = titleOf(state.catalogue, node);
    return maximum > 0
      ? say("graph.state.step", { node: title, value, maximum })
      : say("graph.state.running", { node: title });
  }
  return say(run.ending === null ? "graph.state.idle" : `graph.state.${run.ending}`);
}
