import { Handle, Position } from "@xyflow/react";

import { useSay } from "../../../language/say";
import type { InputDeclaration, NodeDeclaration, OutputDeclaration } from "../../model/catalogue";
import { typeColor } from "../../model/typing";
import { inputHandle, outputHandle } from "../drawn";
import { useSession } from "../session-context";

export function InputHandle({ input }: { input: InputDeclaration }) {
  return (
    <Handle
      type="target"
      position={Position.Left}
      id={inputHandle(input.name)}
      data-type={input.type}
      data-widget={input.widget !== null}
      title={input.type}
      style={{ color: typeColor(input.type) }}
    />
  );
}

export function OutputHandle({ output, index }: { output: OutputDeclaration; index: number }) {
  return (
    <Handle
      type="source"
      position={Position.Right}
      id={outputHandle(index)}
      data-type={output.type}
      title={output.type}
      style={{ color: typeColor(output.type) }}
    />
  );
}

interface InputProps {
  readonly node: string;
  readonly input: InputDeclaration;
  readonly linked: boolean;
}

/** An input by its name. Dragging the dot links it; so does choosing its source from a list, without a mouse. */
export function InputSocket({ node, input, linked }: InputProps) {
  const say = useSay();
  const { dispatch } = useSession();
  const name = say(linked ? "graph.input.linked" : "graph.input", { name: input.name, type: input.type });
  return (
    <div className="graph-socket">
      <InputHandle input={input} />
      <button
        type="button"
        className="graph-socket-name nodrag"
        aria-label={name}
        title={input.help || name}
        data-optional={input.optional}
        onClick={(event) => {
          const { left, bottom } = event.currentTarget.getBoundingClientRect();
          const end = { side: "input" as const, node, input: input.name };
          dispatch({ type: "palette", palette: { near: { x: left, y: bottom }, place: null, end } });
        }}
      >
        {input.name}
      </button>
    </div>
  );
}

export function OutputSocket({
  node,
  output,
  index,
}: {
  node: string;
  output: OutputDeclaration;
  index: number;
}) {
  const say = useSay();
  const { dispatch } = useSession();
  const name = say("graph.output", { name: output.name, type: output.type });
  return (
    <div className="graph-socket graph-socket-out">
      <button
        type="button"
        className="graph-socket-name nodrag"
        aria-label={name}
        title={name}
        onClick={(event) => {
          const { left, bottom } = event.currentTarget.getBoundingClientRect();
          const end = { side: "output" as const, node, output: index };
          dispatch({ type: "palette", palette: { near: { x: left, y: bottom }, place: null, end } });
        }}
      >
        {output.name}
      </button>
      <OutputHandle output={output} index={index} />
    </div>
  );
}

/** All sockets in the title of a folded node: links need somewhere to end. */
export function FoldedSockets({ declaration }: { declaration: NodeDeclaration }) {
  return (
    <>
      {declaration.inputs.map((input) => (
        <InputHandle key={input.name} input={input} />
      ))}
      {declaration.outputs.map((output, index) => (
        <OutputHandle key={index} output={output} index={index} />
      ))}
    </>
  );
}
