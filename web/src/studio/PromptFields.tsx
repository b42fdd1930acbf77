import { useId } from "react";

import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { useProblem } from "../parts/problems";
import { change, settings } from "./settings";

/** What to show and what to keep away from. */
export function PromptFields() {
  const say = useSay();
  const { prompt, negative } = useStore(settings);
  return (
    <>
      <TextArea
        name="prompt"
        label={say("studio.prompt")}
        rows={4}
        value={prompt}
        onChange={(text) => {
          change({ prompt: text });
        }}
      />
      <TextArea
        name="negative_prompt"
        label={say("studio.negative")}
        rows={2}
        value={negative}
        onChange={(text) => {
          change({ negative: text });
        }}
      />
    </>
  );
}

interface Props {
  name: string;
  label: string;
  rows: number;
  value: string;
  onChange: (text: string) => void;
}

function TextArea({ name, label, rows, value, onChange }: Props) {
  const id = useId();
  const problem = useProblem(name);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <textarea
        id={id}
        rows={rows}
        value={value}
        spellCheck={false}
        aria-invalid={problem !== undefined}
        aria-describedby={problem === undefined ? undefined : `${id}-problem`}
        onChange={(event) => {
          onChange(event.target.value);
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
