import { useState, type KeyboardEvent } from "react";

import { useSay } from "../../../language/say";
import { clamped, isWithin, readNumber, stepped } from "./numbers";
import type { WidgetProps } from "./widget";

/** A number that is typed or stepped. What is typed counts at once while it is within the limits. */
export function NumberWidget({ input, value, name, change, settle }: WidgetProps) {
  const say = useSay();
  const [draft, setDraft] = useState<string | null>(null);
  const current = typeof value === "number" || typeof value === "bigint" ? value : 0;
  const typed = draft === null ? current : readNumber(draft, input);
  const type = (text: string) => {
    setDraft(text);
    const number = readNumber(text, input);
    if (number !== null && isWithin(number, input)) change(number);
  };
  const finish = () => {
    if (typed !== null) change(clamped(typed, input));
    setDraft(null);
    settle();
  };
  const step = (direction: 1 | -1) => {
    setDraft(null);
    change(stepped(typed ?? current, direction, input));
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowDown") step(-1);
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) finish();
    else return;
    event.preventDefault();
  };
  const range =
    input.minimum === null || input.maximum === null
      ? undefined
      : say("graph.range", { minimum: input.minimum, maximum: input.maximum });
  return (
    <span className="graph-number">
      <button
        type="button"
        tabIndex={-1}
        aria-label={`${say("graph.less")}: ${name}`}
        onClick={() => {
          step(-1);
        }}
        onBlur={settle}
      >
        ‹
      </button>
      <input
        type="text"
        inputMode={input.widget === "integer" ? "numeric" : "decimal"}
        role="spinbutton"
        aria-label={name}
        aria-valuenow={Number(current)}
        {...(input.minimum === null ? {} : { "aria-valuemin": input.minimum })}
        {...(input.maximum === null ? {} : { "aria-valuemax": input.maximum })}
        aria-invalid={typed === null || !isWithin(typed, input)}
        title={range}
        value={draft ?? String(current)}
        onChange={(event) => {
          type(event.target.value);
        }}
        onBlur={finish}
        onKeyDown={key}
      />
      <button
        type="button"
        tabIndex={-1}
        aria-label={`${say("graph.more")}: ${name}`}
        onClick={() => {
          step(1);
        }}
        onBlur={settle}
      >
        ›
      </button>
    </span>
  );
}
