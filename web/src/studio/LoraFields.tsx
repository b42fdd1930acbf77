import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { useOffers } from "../parts/offers";
import { change, settings } from "./settings";

const MOST_STRENGTH = 10;

/** LoRAs that are merged into the model for this request, each with its strength. */
export function LoraFields() {
  const say = useSay();
  const { loras } = useStore(settings);
  const known = useOffers().files("loras");
  const unused = known.filter((name) => !loras.some((lora) => lora.name === name));
  const set = (at: number, strength: number) => {
    change({ loras: loras.map((lora, i) => (i === at ? { ...lora, strength } : lora)) });
  };
  return (
    <fieldset className="group">
      <legend>{say("studio.loras")}</legend>
      {loras.map((lora, at) => (
        <div className="lora" key={lora.name}>
          <span className="lora-name" title={lora.name}>
            {lora.name}
          </span>
          <input
            type="number"
            step="0.05"
            min={-MOST_STRENGTH}
            max={MOST_STRENGTH}
            value={lora.strength}
            aria-label={say("studio.lora.strength", { name: lora.name })}
            onChange={(event) => {
              const strength = event.target.valueAsNumber;
              if (Number.isFinite(strength)) set(at, strength);
            }}
          />
          <button
            type="button"
            className="plain"
            aria-label={say("studio.lora.remove", { name: lora.name })}
            onClick={() => {
              change({ loras: loras.filter((_, i) => i !== at) });
            }}
          >
            ×
          </button>
        </div>
      ))}
      {known.length === 0 && loras.length === 0 && <p className="quiet small">{say("studio.lora.none")}</p>}
      {unused.length > 0 && (
        <select
          aria-label={say("studio.lora.add")}
          value=""
          onChange={(event) => {
            change({ loras: [...loras, { name: event.target.value, strength: 1, text_strength: null }] });
          }}
        >
          <option value="">{say("studio.lora.add")}…</option>
          {unused.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      )}
    </fieldset>
  );
}
