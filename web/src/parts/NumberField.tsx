import { useId, useState } from "react";

import { useProblem } from "./problems";

interface Props {
  /** As the server calls it, so that its complaints find their place. */
  name: string;
  label: string;
  value: number | null;
  onChange: (value: number | null) => void;
  min?: number;
  max?: number;
  step?: number | "any";
  /** Shown while it is empty; without it, an empty field goes back to its value. */
  placeholder?: string;
}

/** A number that can be typed freely; what is no number changes nothing. */
export function NumberField({ name, label, value, onChange, min, max, step = 1, placeholder }: Props) {
  const id = useId();
  const problem = useProblem(name);
  const [draft, setDraft] = useState<string | null>(null);
  const change = (text: string) => {
    setDraft(text);
    if (text === "") {
      if (placeholder !== undefined) onChange(null);
    } else if (Number.isFinite(Number(text))) onChange(Number(text));
  };
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="number"
        inputMode="decimal"
        value={draft ?? value ?? ""}
        min={min}
        max={max}
        step={step}
        placeholder={placeholder}
        aria-invalid={problem !== undefined}
        aria-describedby={problem === undefined ? undefined : `${id}-problem`}
        onChange={(event) => {
          change(event.target.value);
        }}
        onBlur={() => {
          setDraft(null);
        }}
      />
      {problem !== undefined && (
        <span id={`${id}-problem`} className="problem">
          {problem}
        </span>
      )}
    </div>
  );
}
