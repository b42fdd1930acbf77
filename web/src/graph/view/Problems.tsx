import { useReactFlow } from "@xyflow/react";

import { useSay } from "../../language/say";
import { titleOf } from "../model/document";
import { allProblems, withoutProblems, type Problem } from "../run/run-state";
import { goTo } from "./deeds";
import { nodeMeant } from "./in-run";
import { useSelected, useSession } from "./session-context";

/** All that is wrong, with the way to where it is wrong. */
export function Problems() {
  const say = useSay();
  const { dispatch } = useSession();
  const run = useSelected((state) => state.run);
  const problems = allProblems(run);
  if (problems.length === 0) return null;
  return (
    <section className="graph-problems" aria-label={say("graph.problems", { count: problems.length })}>
      <header>
        <h2>
          {problems.length === 1 ? say("graph.problem") : say("graph.problems", { count: problems.length })}
        </h2>
        <button
          type="button"
          className="plain"
          aria-label={say("graph.dismiss")}
          onClick={() => {
            dispatch({ type: "run", change: withoutProblems });
          }}
        >
          ×
        </button>
      </header>
      <ul>
        {problems.map((problem, index) => (
          <li key={index}>
            <OneProblem problem={problem} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function OneProblem({ problem }: { problem: Problem }) {
  const say = useSay();
  const session = useSession();
  const flow = useReactFlow();
  const catalogue = useSelected((state) => state.catalogue);
  const node = useSelected((state) => nodeMeant(state, problem.node));
  const long = problem.details.includes("\n");
  const jump = () => {
    if (!node || problem.node === null) return;
    const elsewhere = goTo(session, problem.node, node.id);
    if (!elsewhere) void flow.fitView({ nodes: [{ id: node.id }], maxZoom: 1, padding: 0.4, duration: 250 });
  };
  return (
    <>
      {node ? (
        <button type="button" className="graph-problem-jump" title={say("graph.problem.jump")} onClick={jump}>
          {titleOf(catalogue, node)} <span className="quiet">#{node.id}</span>
        </button>
      ) : (
        <strong>{problem.node === null ? say("graph.problem.graph") : `#${problem.node}`}</strong>
      )}
      <p>
        {problem.message}
        {problem.details && !long && <span className="quiet"> {problem.details}</span>}
      </p>
      {long && (
        <details>
          <summary>{say("graph.problem.details")}</summary>
          <pre>{problem.details}</pre>
        </details>
      )}
    </>
  );
}
