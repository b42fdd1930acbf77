import { useSay } from "../../language/say";
import { documentOf } from "../state";
import * as deeds from "./deeds";
import { FileMenu } from "./FileMenu";
import { RunBar } from "./RunBar";
import { useSelected, useSession } from "./session-context";

interface Props {
  readonly pickFile: () => void;
  readonly showKeys: () => void;
}

export function Toolbar({ pickFile, showKeys }: Props) {
  const say = useSay();
  const session = useSession();
  const { dispatch } = session;
  const canUndo = useSelected((state) => state.history.past.length > 0);
  const canRedo = useSelected((state) => state.history.future.length > 0);
  const name = useSelected((state) => documentOf(state).name);
  return (
    <div className="graph-toolbar" role="toolbar" aria-label={say("graph.tools")}>
      <FileMenu pickFile={pickFile} />
      <input
        type="text"
        className="graph-name"
        aria-label={say("graph.name")}
        placeholder={say("graph.unnamed")}
        value={name}
        onChange={(event) => {
          const next = event.target.value;
          dispatch({ type: "edit", edit: (document) => ({ ...document, name: next }), tag: "name" });
        }}
        onBlur={() => {
          dispatch({ type: "sealed" });
        }}
      />
      <button
        type="button"
        title="A"
        onClick={(event) => {
          const { left, bottom } = event.currentTarget.getBoundingClientRect();
          dispatch({
            type: "palette",
            palette: { near: { x: left, y: bottom + 4 }, place: null, end: null },
          });
        }}
      >
        {say("graph.add")}
      </button>
      <button
        type="button"
        title="Ctrl+Z"
        disabled={!canUndo}
        onClick={() => {
          dispatch({ type: "undone" });
        }}
      >
        {say("graph.undo")}
      </button>
      <button
        type="button"
        title="Ctrl+Y"
        disabled={!canRedo}
        onClick={() => {
          dispatch({ type: "redone" });
        }}
      >
        {say("graph.redo")}
      </button>
      <button
        type="button"
        title="L"
        onClick={() => {
          deeds.arrange(session);
        }}
      >
        {say("graph.arrange")}
      </button>
      <button type="button" className="plain" title="?" onClick={showKeys}>
        {say("graph.keys")}
      </button>
      <RunBar />
    </div>
  );
}
