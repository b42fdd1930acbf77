import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { NumberField } from "../parts/NumberField";
import { useOffers } from "../parts/offers";
import { SelectField } from "../parts/SelectField";
import { SAMPLERS, SCHEDULES } from "./names";
import { change, DEFAULTS, settings } from "./settings";

/** How noise becomes a picture. */
export function SamplingFields() {
  const say = useSay();
  const { steps, cfg, sampler, schedule, count } = useStore(settings);
  const { system } = useOffers();
  return (
    <>
      <div className="triple">
        <NumberField
          name="steps"
          label={say("studio.steps")}
          value={steps}
          min={1}
          max={system?.limits.max_steps ?? 1000}
          onChange={(value) => {
            change({ steps: value ?? DEFAULTS.steps });
          }}
        />
        <NumberField
          name="cfg"
          label={say("studio.cfg")}
          value={cfg}
          min={0}
          max={100}
          step="any"
          onChange={(value) => {
            change({ cfg: value ?? DEFAULTS.cfg });
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
          options={system?.samplers ?? SAMPLERS}
          onChange={(value) => {
            change({ sampler: value });
          }}
        />
        <SelectField
          name="schedule"
          label={say("studio.schedule")}
          value={schedule}
          options={system?.schedules ?? SCHEDULES}
          onChange={(value) => {
            change({ schedule: value });
          }}
        />
      </div>
    </>
  );
}
