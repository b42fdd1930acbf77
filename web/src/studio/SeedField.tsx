import { useId } from "react";

import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { useProblem } from "../parts/problems";
import { change, randomSeed, settings } from "./settings";

/** The seed, which is drawn anew for every job unless it is locked, as it is when it is typed or drawn here. */
export function SeedField() {
  const say = useSay();
  const id = useId();
  const problem = useProblem("seed");
  const { seed, locked } = useStore(settings);
  return (
    <div className="field">
      <label htmlFor={id}>{say("studio.seed")}</label>
      <div className="seed">
        <input
          id={id}
          type="text"
          inputMode="numeric"
          pattern="[0-9]{1,20}"
          maxLength={20}
          className="mono"
          value={seed}
          aria-invalid={problem !== undefined}
          onChange={(event) => {
            // Who types a seed wants that one.
            change({ seed: event.target.value.replace(/\D/g, ""), locked: true });
          }}
        />
        <button
          type="button"
          aria-label={say("studio.seed.draw")}
          title={say("studio.seed.draw")}
          onClick={() => {
            // The number that is shown is the one that is sent.
            change({ seed: randomSeed(), locked: true });
          }}
        >
          ⚄
        </button>
        <label className="check">
          <input
            type="checkbox"
            checked={locked}
            onChange={(event) => {
              change({ locked: event.target.checked });
            }}
          />
          <span>{say("studio.seed.lock")}</span>
        </label>
      </div>
      {problem !== undefined && <span className="problem">{problem}</span>}
    </div>
  );
}
