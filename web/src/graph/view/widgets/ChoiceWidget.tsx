import { useState } from "react";

import { useSay } from "../../../language/say";
import { asText } from "../../model/json";
import { LongChoices } from "./LongChoices";
import type { WidgetProps } from "./widget";

/** Beyond this many, a list is searched instead of scrolled through. */
const LONG = 15;

export function ChoiceWidget(props: WidgetProps) {
  const { input, value, name, change, settle } = props;
  const say = useSay();
  const [open, setOpen] = useState<DOMRect | null>(null);
  const chosen = asText(value);
  const here = input.choices.includes(chosen);
  if (input.choices.length > LONG) {
    return (
      <>
        <button
          type="button"
          className="graph-choice"
          aria-label={`${name}: ${chosen}`}
          aria-haspopup="listbox"
          aria-expanded={open !== null}
          data-missing={!here}
          onClick={(event) => {
            setOpen(event.currentTarget.getBoundingClientRect());
          }}
        >
          <span>{here ? chosen : say("graph.missing", { value: chosen })}</span>
        </button>
        {open && (
          <LongChoices
            name={name}
            choices={input.choices}
            chosen={chosen}
            under={open}
            choose={(choice) => {
              setOpen(null);
              if (choice !== null) change(choice);
              settle();
            }}
          />
        )}
      </>
    );
  }
  return (
    <select
      aria-label={name}
      aria-invalid={!here}
      value={chosen}
      onChange={(event) => {
        change(event.target.value);
        settle();
      }}
    >
      {!here && <option value={chosen}>{say("graph.missing", { value: chosen })}</option>}
      {input.choices.map((choice) => (
        <option key={choice} value={choice}>
          {choice}
        </option>
      ))}
    </select>
  );
}
