import { useSay } from "../../../language/say";
import { CONTROLS, type Control } from "../../model/document";
import { nextSeed, setControl } from "../../model/edits";
import { useSession } from "../session-context";
import type { WidgetProps } from "./widget";

interface Props extends WidgetProps {
  readonly title: string;
  readonly control: Control;
}

/** What a seed does after a run, and a die to throw now. */
export function SeedControl({ node, input, value, change, settle, title, control }: Props) {
  const say = useSay();
  const { dispatch } = useSession();
  return (
    <span className="graph-seed">
      <select
        aria-label={say("graph.seed.after", { input: input.name, node: title })}
        value={control}
        onChange={(event) => {
          const next = CONTROLS.find((one) => one === event.target.value) ?? "fixed";
          dispatch({ type: "edit", edit: (document) => setControl(document, node, input.name, next) });
        }}
      >
        {CONTROLS.map((one) => (
          <option key={one} value={one}>
            {say(`graph.seed.${one}`)}
          </option>
        ))}
      </select>
      <button
        type="button"
        aria-label={`${say("graph.seed.draw")}: ${title}`}
        title={say("graph.seed.draw")}
        onClick={() => {
          change(nextSeed(value ?? 0, "randomize", input.maximum, Math.random));
          settle();
        }}
      >
        <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
          <rect x="1.5" y="1.5" width="13" height="13" rx="2.5" fill="none" stroke="currentColor" />
          <circle cx="5" cy="5" r="1.2" fill="currentColor" />
          <circle cx="8" cy="8" r="1.2" fill="currentColor" />
          <circle cx="11" cy="11" r="1.2" fill="currentColor" />
        </svg>
      </button>
    </span>
  );
}
