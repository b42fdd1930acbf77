import { useId } from "react";

import { useProblem } from "./problems";

interface Props {
  name: string;
  label: string;
  value: string;
  /** Values, or pairs of a value and what people call it. */
  options: readonly (string | readonly [string, string])[];
  onChange: (value: string) => void;
}

/** One of several. What is chosen stays choosable, also when it is not in the list. */
export function SelectField({ name, label, value, options, onChange }: Props) {
  const id = useId();
  const problem = useProblem(name);
  const pairs = options.map((option) => (typeof option === "string" ? ([option, option] as const) : option));
  const chosen = pairs.find(([known]) => known === value)?.[1] ?? value;
  const missing = pairs.some(([known]) => known === value) ? [] : [[value, value] as const];
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select
        id={id}
        value={value}
        // A narrow field cuts long names off.
        title={chosen}
        aria-invalid={problem !== undefined}
        aria-describedby={problem === undefined ? undefined : `${id}-problem`}
        onChange={(event) => {
          onChange(event.target.value);
        }}
      >
        {[...missing, ...pairs].map(([option, words]) => (
          <option key={option} value={option}>
            {words}
          </option>
        ))}
      </select>
      {problem !== undefined && (
        <span id={`${id}-problem`} className="problem">
          {problem}
        </span>
      )}
    </div>
  );
}
