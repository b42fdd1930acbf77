import { NodeResizer, type NodeProps } from "@xyflow/react";
import { memo } from "react";

import { useSay } from "../../language/say";
import { changeGroup } from "../model/edits";
import type { GroupDrawn } from "./drawn";
import { useSession } from "./session-context";

/** A titled frame; dragging its title takes along what lies in it. */
export const GroupFrame = memo(function GroupFrame({ id, data, selected }: NodeProps<GroupDrawn>) {
  const say = useSay();
  const { dispatch } = useSession();
  const { group } = data;
  return (
    <section
      className="graph-group"
      style={group.color === null ? {} : { ["--group" as string]: group.color }}
    >
      <div className="graph-group-title">
        <input
          type="text"
          aria-label={say("graph.group.title")}
          value={group.title}
          size={Math.max(group.title.length, 6)}
          onChange={(event) => {
            const title = event.target.value;
            dispatch({
              type: "edit",
              edit: (document) => changeGroup(document, id, { title }),
              tag: `group:${id}`,
            });
          }}
          onBlur={() => {
            dispatch({ type: "sealed" });
          }}
        />
      </div>
      <NodeResizer isVisible={selected} minWidth={120} minHeight={80} handleClassName="graph-group-resize" />
    </section>
  );
});
