import { NodeResizeControl, type NodeProps } from "@xyflow/react";
import { memo } from "react";

import { useSay } from "../../../language/say";
import { declarationOf, isKnown, type GraphNode } from "../../model/document";
import type { InputDeclaration, NodeDeclaration } from "../../model/catalogue";
import { fedInputs, type NodeDrawn } from "../drawn";
import { enter } from "../deeds";
import { problemsOf, runOf } from "../in-run";
import { useSelected, useSession } from "../session-context";
import { NodePictures } from "./NodePictures";
import { NodeTitle } from "./NodeTitle";
import { FoldedSockets, InputHandle, InputSocket, OutputSocket } from "./Sockets";
import { Widget } from "./Widget";

const WIDTH = 270;
const NARROWEST = 200;

/**
 * One node. Drawn again when its own document part, its own run or its own problems change, and never for another
 * node's sake.
 */
export const NodeView = memo(function NodeView({ id, data, selected }: NodeProps<NodeDrawn>) {
  const { node } = data;
  const say = useSay();
  const catalogue = useSelected((state) => state.catalogue);
  const state = useSelected((now) => runOf(now, id)?.state);
  const wrong = useSelected((now) => problemsOf(now, id) !== undefined);
  const declaration = declarationOf(catalogue, node);
  const title = node.title ?? declaration.title;
  const known = isKnown(catalogue, node);
  const notes = {
    active: state === "cached" ? say("graph.cached") : "",
    muted: say("graph.muted"),
    bypassed: say("graph.bypassed"),
  };
  return (
    <div
      className="graph-node"
      data-node={id}
      data-type={node.type}
      data-state={state}
      data-mode={node.mode}
      data-wrong={wrong || !known}
      data-virtual={declaration.virtual}
      data-folded={node.collapsed}
      style={declaration.virtual === "edge" ? {} : sizeOf(node)}
    >
      <NodeTitle id={id} title={title} note={notes[node.mode]} />
      {node.collapsed ? (
        <FoldedSockets declaration={declaration} />
      ) : (
        <>
          {!known && <p className="graph-node-problem">{say("graph.unknown", { type: node.type })}</p>}
          <NodeBody node={node} title={title} declaration={declaration} />
          {declaration.virtual === "subgraph" && <EnterButton id={id} title={title} />}
          <NodePictures id={id} title={title} />
        </>
      )}
      <NodeProblems id={id} />
      {selected && !node.collapsed && declaration.virtual !== "edge" && (
        <NodeResizeControl
          className="graph-resize"
          minWidth={NARROWEST}
          minHeight={40}
          position="bottom-right"
        />
      )}
    </div>
  );
});

/** Double clicking the title does the same. */
function EnterButton({ id, title }: { id: string; title: string }) {
  const say = useSay();
  const session = useSession();
  return (
    <button
      type="button"
      className="graph-enter nodrag"
      aria-label={say("graph.enter.node", { node: title })}
      onClick={() => {
        enter(session, id);
      }}
    >
      {say("graph.enter")}
    </button>
  );
}

function sizeOf(node: GraphNode) {
  if (node.collapsed) return {};
  return { width: Math.max(node.size?.width ?? WIDTH, NARROWEST), minHeight: node.size?.height };
}

interface BodyProps {
  readonly node: GraphNode;
  readonly title: string;
  readonly declaration: NodeDeclaration;
}

function NodeBody({ node, title, declaration }: BodyProps) {
  const fed = useSelected((state) => fedInputs(state, node.id)).split("\n");
  const sockets = declaration.inputs.filter((input) => input.widget === null);
  const widgets = declaration.inputs.filter((input) => input.widget !== null);
  return (
    <>
      {(sockets.length > 0 || declaration.outputs.length > 0) && (
        <div className="graph-sockets">
          <div>
            {sockets.map((input) => (
              <InputSocket key={input.name} node={node.id} input={input} linked={fed.includes(input.name)} />
            ))}
          </div>
          <div>
            {declaration.outputs.map((output, index) => (
              <OutputSocket key={index} node={node.id} output={output} index={index} />
            ))}
          </div>
        </div>
      )}
      {widgets.map((input) => (
        <WidgetRow
          key={input.name}
          node={node}
          title={title}
          input={input}
          linked={fed.includes(input.name)}
        />
      ))}
    </>
  );
}

interface RowProps {
  readonly node: GraphNode;
  readonly title: string;
  readonly input: InputDeclaration;
  readonly linked: boolean;
}

function WidgetRow({ node, title, input, linked }: RowProps) {
  const say = useSay();
  return (
    <div className="graph-widget" data-kind={kindOf(input)}>
      <InputHandle input={input} />
      <span className="graph-widget-name" title={input.help || input.name}>
        {input.name}
      </span>
      <div className="graph-widget-field nodrag">
        {linked ? (
          <span className="quiet">{say("graph.linked")}</span>
        ) : (
          <Widget node={node} title={title} input={input} />
        )}
      </div>
    </div>
  );
}

function kindOf(input: InputDeclaration): string | null {
  if (input.upload) return "picture";
  if (input.seed) return "seed";
  return input.multiline ? "long-text" : input.widget;
}

function NodeProblems({ id }: { id: string }) {
  const problems = useSelected((state) => problemsOf(state, id));
  if (!problems) return null;
  return (
    <div className="graph-node-problem" role="alert">
      {problems.map((problem, index) => (
        <p key={index}>
          {problem.message}
          {!problem.details.includes("\n") && <span className="quiet"> {problem.details}</span>}
        </p>
      ))}
    </div>
  );
}
