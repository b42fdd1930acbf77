import { BaseEdge, getBezierPath, type EdgeProps } from "@xyflow/react";
import { memo } from "react";

import type { LinkDrawn } from "./drawn";

export const LinkEdge = memo(function LinkEdge(props: EdgeProps<LinkDrawn>) {
  const { sourceX, sourceY, sourcePosition, targetX, targetY, targetPosition, data, id } = props;
  const [path] = getBezierPath({ sourceX, sourceY, sourcePosition, targetX, targetY, targetPosition });
  return (
    <BaseEdge id={id} path={path} interactionWidth={18} style={{ stroke: data?.color ?? "currentColor" }} />
  );
});
