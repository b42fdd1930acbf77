import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { NumberField } from "../parts/NumberField";
import { useOffers } from "../parts/offers";
import { SelectField } from "../parts/SelectField";
import { change, settings } from "./settings";

/** What is seldom changed. */
export function MoreFields() {
  const say = useSay();
  const { eta, clip_skip, vae } = useStore(settings);
  const vaes = useOffers().files("vae");
  return (
    <details className="group">
      <summary>{say("studio.more")}</summary>
      <div className="triple">
        <NumberField
          name="clip_skip"
          label={say("studio.clip_skip")}
          value={clip_skip}
          min={0}
          max={12}
          onChange={(value) => {
            change({ clip_skip: value ?? 0 });
          }}
        />
        <NumberField
          name="eta"
          label={say("studio.eta")}
          value={eta}
          min={0}
          max={1}
          step="any"
          placeholder={say("studio.eta.own")}
          onChange={(value) => {
            change({ eta: value });
          }}
        />
        <SelectField
          name="vae"
          label={say("studio.vae")}
          value={vae}
          options={[["", say("studio.vae.own")], ...vaes.map((name) => [name, name] as const)]}
          onChange={(value) => {
            change({ vae: value });
          }}
        />
      </div>
    </details>
  );
}
