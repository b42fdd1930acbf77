import { useSay } from "../../../language/say";
import { runOf } from "../in-run";
import { useSelected } from "../session-context";

interface Props {
  readonly id: string;
  readonly title: string;
  /** What to show beside the title. */
  readonly note: string;
}

export function NodeTitle({ id, title, note }: Props) {
  return (
    <header className="graph-node-title">
      <span className="graph-node-name" title={title}>
        {title}
      </span>
      {note && <span className="graph-node-note">{note}</span>}
      <span className="graph-node-id" aria-hidden="true">
        {id}
      </span>
      <NodeProgress id={id} title={title} />
    </header>
  );
}

function NodeProgress({ id, title }: { id: string; title: string }) {
  const say = useSay();
  const run = useSelected((state) => runOf(state, id));
  if (run?.state !== "running") return null;
  const known = run.maximum > 0;
  return (
    <progress
      className="graph-progress"
      aria-label={say("graph.progress", { node: title })}
      {...(known ? { value: run.value, max: run.maximum } : {})}
    />
  );
}
