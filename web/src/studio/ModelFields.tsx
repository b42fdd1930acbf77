import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { useOffers } from "../parts/offers";
import { SelectField } from "../parts/SelectField";
import { PresetField } from "./PresetField";
import { change, settings } from "./settings";

/** Which model, and with which optimisations it runs. */
export function ModelFields() {
  const say = useSay();
  const { model } = useStore(settings);
  const { system, files } = useOffers();
  const first = system?.defaults.model;
  const names = [
    ...new Set([
      ...(system?.defaults.models ?? []),
      ...loaded(system?.workers ?? []),
      ...files("checkpoints"),
    ]),
  ];
  const options = names.filter((name) => name !== first).map((name) => [name, name] as const);
  return (
    <div className="pair">
      <SelectField
        name="model"
        label={say("studio.model")}
        value={model === first ? "" : model}
        options={[["", say("studio.model.default", { name: first ?? "…" })], ...options]}
        onChange={(name) => {
          change({ model: name });
        }}
      />
      <PresetField />
    </div>
  );
}

function loaded(workers: readonly { models: readonly { name: string }[] }[]): string[] {
  return workers.flatMap((worker) => worker.models.map((model) => model.name));
}
