import { getBezierPath, type ConnectionLineComponentProps } from "@xyflow/react";

import { useSay } from "../../language/say";
import { outputType, refusal, typeColor } from "../model/typing";
import { documentOf, type State } from "../state";
import { endsBetween, outputOf, type Drawn } from "./drawn";
import { saidRefusal } from "./refused";
import { useSelected, useSession } from "./session-context";

type Props = ConnectionLineComponentProps<Drawn>;

/** The link in the hand: coloured by its type, and with the reason beside it where it is refused. */
export function ConnectionLine(props: Props) {
  const { fromX, fromY, toX, toY, fromPosition, toPosition } = props;
  const say = useSay();
  const { state } = useSession();
  const color = useSelected((now) => colorOf(now, props));
  const [path] = getBezierPath({
    ...{ sourceX: fromX, sourceY: fromY, sourcePosition: fromPosition },
    ...{ targetX: toX, targetY: toY, targetPosition: toPosition },
  });
  const why = whyRefused(state.get(), props.fromHandle, props.toHandle);
  return (
    <g className="graph-connecting" data-refused={why !== null}>
      <path d={path} fill="none" style={{ stroke: why ? "var(--bad)" : color }} />
      {why && (
        <foreignObject x={toX + 14} y={toY - 56} width={360} height={80}>
          <div className="graph-refusal">{saidRefusal(say, why)}</div>
        </foreignObject>
      )}
    </g>
  );
}

function colorOf(state: State, { fromNode, fromHandle }: Props): string {
  if (fromHandle.type !== "source") return "var(--quiet)";
  return typeColor(outputType(state.catalogue, documentOf(state), fromNode.id, outputOf(fromHandle.id)));
}

function whyRefused(state: State, fromHandle: Props["fromHandle"], toHandle: Props["toHandle"]) {
  const ends = toHandle && endsBetween(fromHandle, toHandle);
  return ends && refusal(state.catalogue, documentOf(state), ends);
}
