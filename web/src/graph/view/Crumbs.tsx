import { useSay } from "../../language/say";
import { levelAt } from "../model/subgraphs";
import { wholeOf, type State } from "../state";
import { useSelected, useSession } from "./session-context";

/** The names of the subgraphs on the way, one to a line: a text, so that it stays equal while nothing changes. */
function namesOnTheWay(state: State): string {
  return state.path
    .map((_, depth) => levelAt(wholeOf(state), state.path.slice(0, depth + 1)).name)
    .join("\n");
}

/** Inside a subgraph: where that is, and the way back. */
export function Crumbs() {
  const say = useSay();
  const { dispatch } = useSession();
  const path = useSelected((state) => state.path);
  const names = useSelected(namesOnTheWay);
  if (path.length === 0) return null;
  const all = [say("graph.crumbs.top"), ...names.split("\n")];
  return (
    <nav className="graph-crumbs" aria-label={say("graph.crumbs")}>
      <ol>
        {all.map((name, depth) => (
          <li key={depth}>
            {depth === path.length ? (
              <span aria-current="location">{name}</span>
            ) : (
              <button
                type="button"
                onClick={() => {
                  dispatch({ type: "entered", path: path.slice(0, depth) });
                }}
              >
                {name}
              </button>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
