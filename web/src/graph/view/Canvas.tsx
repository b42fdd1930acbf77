import {
  Background,
  Controls,
  MiniMap,
  ReactFlow,
  useNodesInitialized,
  useReactFlow,
  type Connection,
  type Edge,
  type FinalConnectionState,
  type Handle,
} from "@xyflow/react";
import { useEffect, useMemo, useRef, useState, type MouseEvent as ReactMouseEvent } from "react";

import { useSay } from "../../language/say";
import { connect, disconnect } from "../model/edits";
import type { End } from "../model/search";
import { outputType, refusal, type Ends } from "../model/typing";
import { declarationOf } from "../model/document";
import { documentOf, type State } from "../state";
import { carriedBy, linksChanged, nodesChanged, type Carried } from "./canvas-changes";
import { ConnectionLine } from "./ConnectionLine";
import { enter } from "./deeds";
import { endsBetween, inputOf, linkDrawer, nodeDrawer, outputOf, type Drawn, type LinkDrawn } from "./drawn";
import { GroupFrame } from "./GroupFrame";
import { LinkEdge } from "./LinkEdge";
import { NodeView } from "./node/NodeView";
import { saidRefusal } from "./refused";
import { useSelected, useSession } from "./session-context";

const NODE_TYPES = { node: NodeView, "group-frame": GroupFrame };
const EDGE_TYPES = { link: LinkEdge };
const NOTHING_CARRIED: Carried = new Map();
const FITTED = { padding: 0.12, maxZoom: 1 };

function endsOf(connection: Connection | Edge): Ends {
  return {
    from: connection.source,
    output: outputOf(connection.sourceHandle),
    to: connection.target,
    input: inputOf(connection.targetHandle),
  };
}

export function Canvas() {
  const session = useSession();
  const say = useSay();
  const flow = useReactFlow<Drawn, LinkDrawn>();
  const drawNodes = useMemo(() => remembered(nodeDrawer()), []);
  const drawLinks = useMemo(() => remembered(linkDrawer()), []);
  const nodes = useSelected(drawNodes);
  const links = useSelected(drawLinks);
  const carried = useRef<Carried>(NOTHING_CARRIED);
  const [held, setHeld] = useState<string | null>(null);
  const { state, dispatch } = session;
  useShownAnew();

  const openPalette = (event: { clientX: number; clientY: number }, end: End | null) => {
    const near = { x: event.clientX, y: event.clientY };
    dispatch({ type: "palette", palette: { near, place: flow.screenToFlowPosition(near), end } });
  };
  const join = (connection: Connection) => {
    const { catalogue } = state.get();
    dispatch({ type: "edit", edit: (document) => connect(catalogue, document, endsOf(connection)) });
  };
  const letGo = (event: MouseEvent | TouchEvent, connection: FinalConnectionState) => {
    setHeld(null);
    const { isValid, fromHandle, toHandle } = connection;
    if (isValid || !fromHandle) return;
    const ends = toHandle && endsBetween(fromHandle, toHandle);
    const why = ends && refusal(state.get().catalogue, documentOf(state.get()), ends);
    if (why) dispatch({ type: "notice", notice: saidRefusal(say, why) });
    else if (!toHandle && "clientX" in event && isPane(event.target))
      openPalette(event, looseEnd(fromHandle));
  };
  const doubleClick = (event: ReactMouseEvent) => {
    if (isPane(event.target)) openPalette(event, null);
    else if (event.target instanceof Element && event.target.closest(".graph-node-title"))
      enter(session, event.target.closest<HTMLElement>("[data-node]")?.dataset.node ?? "");
  };

  return (
    // The same is done by a key and by a button.
    <div className="graph-canvas" data-held={held} onDoubleClick={doubleClick}>
      {held !== null && <style>{onlyFitting(held)}</style>}
      <ReactFlow<Drawn, LinkDrawn>
        aria-label={say("graph.canvas")}
        nodes={nodes}
        edges={links}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        onlyRenderVisibleElements
        onNodesChange={(changes) => {
          nodesChanged(session, changes, carried.current);
        }}
        onEdgesChange={(changes) => {
          linksChanged(session, changes);
        }}
        onNodeDragStart={(_event, node) => {
          dispatch({ type: "sealed" });
          carried.current = node.type === "group-frame" ? carriedBy(state.get(), node.id) : NOTHING_CARRIED;
        }}
        onNodeDragStop={() => {
          dispatch({ type: "sealed" });
          carried.current = NOTHING_CARRIED;
        }}
        isValidConnection={(connection) =>
          refusal(state.get().catalogue, documentOf(state.get()), endsOf(connection)) === null
        }
        onConnect={join}
        onConnectStart={(_event, { nodeId, handleId, handleType }) => {
          setHeld(heldType(state.get(), nodeId, handleId, handleType));
        }}
        onConnectEnd={letGo}
        onReconnect={(link, connection) => {
          const { catalogue } = state.get();
          dispatch({
            type: "edit",
            edit: (document) =>
              connect(catalogue, disconnect(document, [Number(link.id)]), endsOf(connection)),
          });
        }}
        onReconnectEnd={(_event, link, _handle, connection) => {
          setHeld(null);
          if (!connection.toNode)
            dispatch({ type: "edit", edit: (document) => disconnect(document, [Number(link.id)]) });
        }}
        connectionLineComponent={ConnectionLine}
        connectionRadius={28}
        deleteKeyCode={null}
        multiSelectionKeyCode={["Control", "Meta", "Shift"]}
        selectionKeyCode="Shift"
        zoomOnDoubleClick={false}
        minZoom={0.03}
        maxZoom={2}
        nodeDragThreshold={2}
        fitView
        fitViewOptions={FITTED}
        proOptions={{ hideAttribution: true }}
      >
        <Background gap={24} size={1.2} />
        <Controls showInteractive={false} fitViewOptions={FITTED} />
        <MiniMap
          pannable
          zoomable
          ariaLabel={null}
          nodeStrokeWidth={0}
          nodeColor={mapColor}
          className="graph-map"
        />
      </ReactFlow>
    </div>
  );
}

function mapColor(node: Drawn): string {
  return node.type === "group-frame" ? "transparent" : "";
}

function isPane(target: EventTarget | null): boolean {
  return target instanceof Element && target.classList.contains("react-flow__pane");
}

/** The same list for the same state parts: a subscriber compares by identity. */
function remembered<Item>(draw: (state: State) => Item[]): (state: State) => Item[] {
  let last: Item[] = [];
  return (state) => {
    const next = draw(state);
    if (next.length !== last.length || next.some((item, index) => item !== last[index])) last = next;
    return last;
  };
}

function useShownAnew(): void {
  const shownAnew = useSelected((state) => state.shownAnew);
  const empty = useSelected((state) => documentOf(state).nodes.size === 0);
  const ready = useNodesInitialized();
  const flow = useReactFlow();
  const shown = useRef(0);
  useEffect(() => {
    if ((!ready && !empty) || shown.current === shownAnew) return;
    shown.current = shownAnew;
    // Of nothing there is nothing to show, and what is added later stays where it was put.
    void (empty ? flow.setViewport({ x: 0, y: 0, zoom: 1 }) : flow.fitView(FITTED));
  }, [ready, empty, shownAnew, flow]);
}

function heldType(
  state: State,
  node: string | null,
  handle: string | null,
  side: string | null,
): string | null {
  const document = documentOf(state);
  const found = node === null ? undefined : document.nodes.get(node);
  if (!found) return null;
  if (side === "source") return outputType(state.catalogue, document, found.id, outputOf(handle));
  const inputs = declarationOf(state.catalogue, found).inputs;
  return inputs.find((input) => input.name === inputOf(handle))?.type ?? null;
}

/** Sockets of another type step back while a link is in the hand; a rule does it without drawing any node again. */
function onlyFitting(type: string): string {
  if (type === "*") return "";
  return `.graph-canvas .react-flow__handle:not([data-type="${CSS.escape(type)}"], [data-type="*"]) { opacity: 0.15; }`;
}

function looseEnd({ type, nodeId, id }: Handle): End {
  return type === "source"
    ? { side: "output", node: nodeId, output: outputOf(id) }
    : { side: "input", node: nodeId, input: inputOf(id) };
}
