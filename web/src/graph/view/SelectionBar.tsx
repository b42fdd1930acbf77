import { useSay } from "../../language/say";
import { titleOf, type GraphNode } from "../model/document";
import { changeNode } from "../model/edits";
import { documentOf, type State } from "../state";
import * as deeds from "./deeds";
import { useSelected, useSession } from "./session-context";

function onlyNode(state: State): GraphNode | undefined {
  const [id = ""] = state.selected;
  return state.selected.size === 1 ? documentOf(state).nodes.get(id) : undefined;
}

/** What can be done with what is selected. */
export function SelectionBar() {
  const say = useSay();
  const session = useSession();
  const count = useSelected((state) => state.selected.size + state.selectedLinks.size);
  const nodes = useSelected((state) => state.selected.size);
  const single = useSelected(onlyNode);
  if (count === 0) return null;
  return (
    <div className="graph-selection" role="toolbar" aria-label={say("graph.selection.tools")}>
      {single ? (
        <Renaming node={single} />
      ) : (
        <span className="quiet">{say("graph.selection", { count })}</span>
      )}
      {nodes > 0 && (
        <>
          <button
            type="button"
            onClick={() => {
              deeds.duplicate(session);
            }}
          >
            {say("graph.duplicate")}
          </button>
          <button
            type="button"
            onClick={() => {
              deeds.setMode(session, "muted");
            }}
          >
            {say("graph.mute")}
          </button>
          <button
            type="button"
            onClick={() => {
              deeds.setMode(session, "bypassed");
            }}
          >
            {say("graph.bypass")}
          </button>
          <button
            type="button"
            onClick={() => {
              deeds.fold(session);
            }}
          >
            {say("graph.collapse")}
          </button>
          <button
            type="button"
            onClick={() => {
              deeds.group(session, say);
            }}
          >
            {say("graph.group")}
          </button>
        </>
      )}
      <button
        type="button"
        onClick={() => {
          session.dispatch({ type: "removed" });
        }}
      >
        {say("graph.delete")}
      </button>
    </div>
  );
}

function Renaming({ node }: { node: GraphNode }) {
  const say = useSay();
  const { dispatch } = useSession();
  const catalogue = useSelected((state) => state.catalogue);
  return (
    <input
      type="text"
      aria-label={say("graph.rename")}
      placeholder={titleOf(catalogue, { ...node, title: null })}
      value={node.title ?? ""}
      onChange={(event) => {
        const title = event.target.value === "" ? null : event.target.value;
        dispatch({
          type: "edit",
          edit: (document) => changeNode(document, node.id, { title }),
          tag: `title:${node.id}`,
        });
      }}
      onBlur={() => {
        dispatch({ type: "sealed" });
      }}
    />
  );
}
