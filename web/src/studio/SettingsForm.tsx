import { useMemo, type KeyboardEvent, type SyntheticEvent } from "react";

import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { ProblemsContext, problemsOf } from "../parts/problems";
import { useAction } from "../parts/useAction";
import { GridFields } from "./GridFields";
import { axes, gridPlan, obstacle } from "./gridPlan";
import { LoraFields } from "./LoraFields";
import { ModelFields } from "./ModelFields";
import { MoreFields } from "./MoreFields";
import { unsent } from "./outbox";
import { PromptFields } from "./PromptFields";
import { SamplingFields } from "./SamplingFields";
import { SeedField } from "./SeedField";
import { change, DEFAULTS } from "./settings";
import { SizeFields } from "./SizeFields";
import { StartFields } from "./StartFields";
import { generate } from "./generate";

/** Everything that can be asked for, and the button that asks. */
export function SettingsForm() {
  const say = useSay();
  const planned = useStore(gridPlan);
  const waiting = useStore(unsent);
  const { run, busy, error, clear } = useAction();
  const problems = useMemo(() => problemsOf(error), [error]);
  const blocked = planned.on && obstacle(planned, say) !== null;
  const go = () => {
    if (!blocked) run(generate);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    // A key that is held down asks once.
    if (!event.repeat) go();
  };
  const label = planned.on ? say("studio.generate.grid", { n: axes(planned).cells }) : say("studio.generate");
  return (
    <ProblemsContext value={problems}>
      <form
        className="settings"
        aria-label={say("studio.settings")}
        noValidate
        onKeyDown={keys}
        onSubmit={(event: SyntheticEvent) => {
          event.preventDefault();
          go();
        }}
      >
        <div className="fields">
          <PromptFields />
          <ModelFields />
          <SizeFields />
          <SamplingFields />
          <SeedField />
          <LoraFields />
          <StartFields />
          <GridFields />
          <MoreFields />
        </div>
        <div className="go">
          <Notice error={error} onClose={clear} />
          {waiting > 0 && <p className="quiet small">{say("studio.unsent", { n: waiting })}</p>}
          <div className="row">
            <button type="submit" className="primary grow" disabled={blocked || (busy && waiting === 0)}>
              {busy ? say("studio.sending") : label}
            </button>
            <button
              type="button"
              onClick={() => {
                clear();
                change(DEFAULTS);
              }}
            >
              {say("studio.reset")}
            </button>
          </div>
        </div>
      </form>
    </ProblemsContext>
  );
}
