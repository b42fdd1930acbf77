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
  const missing = pairs.some(([known]) => known === value) ? [] : [[value, value] as const];
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select
        id={id}
        value={value}
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
