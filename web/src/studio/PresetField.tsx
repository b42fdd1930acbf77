import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { useOffers } from "../parts/offers";
import { SelectField } from "../parts/SelectField";
import { change, settings } from "./settings";

/** With which optimisations the model runs. */
export function PresetField() {
  const say = useSay();
  const { preset } = useStore(settings);
  const { system } = useOffers();
  const own = [...new Set(system?.workers.map((worker) => worker.preset).filter(Boolean))].join(", ");
  const others = system?.presets.filter((name) => name !== own) ?? [];
  const options = others.map((name) => {
    const lossy = system?.lossy_presets.includes(name);
    return [name, lossy ? say("studio.preset.lossy", { name }) : name] as const;
  });
  return (
    <SelectField
      name="preset"
      label={say("studio.preset")}
      value={preset === own ? "" : preset}
      options={[["", say("studio.preset.default", { name: own || "…" })], ...options]}
      onChange={(name) => {
        change({ preset: name });
      }}
    />
  );
}
