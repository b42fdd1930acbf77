import type { SamplingValues } from "../api/system";
import { useStore } from "../connection/store";
import { useSay, type Say } from "../language/say";
import { NumberField } from "../parts/NumberField";
import { useOffers } from "../parts/offers";
import { SelectField } from "../parts/SelectField";
import { SAMPLERS, SCHEDULES } from "./names";
import { change, settings } from "./settings";
import { useModelSampling } from "./useModelSampling";

/** How noise becomes a picture. What is empty is automatic: the model's own value, which is shown. */
export function SamplingFields() {
  const say = useSay();
  const { steps, cfg, sampler, schedule, count } = useStore(settings);
  const { system } = useOffers();
  const automatic = automaticLabels(useModelSampling(), say);
  return (
    <>
      <div className="triple">
        <NumberField
          name="steps"
          label={say("studio.steps")}
          value={steps}
          min={1}
          max={system?.limits.max_steps ?? 1000}
          placeholder={automatic.steps}
          onChange={(value) => {
            change({ steps: value });
          }}
        />
        <NumberField
          name="cfg"
          label={say("studio.cfg")}
          value={cfg}
          min={0}
          max={100}
          step="any"
          placeholder={automatic.cfg}
          onChange={(value) => {
            change({ cfg: value });
          }}
        />
        <NumberField
          name="count"
          label={say("studio.count")}
          value={count}
          min={1}
          max={system?.limits.max_count ?? 64}
          onChange={(value) => {
            change({ count: value ?? 1 });
          }}
        />
      </div>
      <div className="pair">
        <SelectField
          name="sampler"
          label={say("studio.sampler")}
          value={sampler}
          options={[["", automatic.sampler], ...(system?.samplers ?? SAMPLERS)]}
          onChange={(value) => {
            change({ sampler: value });
          }}
        />
        <SelectField
          name="schedule"
          label={say("studio.schedule")}
          value={schedule}
          options={[["", automatic.schedule], ...(system?.schedules ?? SCHEDULES)]}
          onChange={(value) => {
            change({ schedule: value });
          }}
        />
      </div>
    </>
  );
}

/** The fields are narrow, so what they show is short. */
function automaticLabels(own: SamplingValues | null, say: Say): Record<keyof SamplingValues, string> {
  if (own === null) {
    const [name, number] = [say("studio.automatic"), say("studio.automatic.short")];
    return { steps: number, cfg: number, sampler: name, schedule: name };
  }
  const label = (value: string | number) => say("studio.automatic.value", { value });
  return {
    steps: label(own.steps),
    cfg: label(own.cfg),
    sampler: label(own.sampler),
    schedule: label(own.schedule),
  };
}
