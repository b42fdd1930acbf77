import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { NumberField } from "../parts/NumberField";
import { change, settings } from "./settings";
import { start } from "./start";

const SIDE = { min: 16, max: 16384, step: 8 };

export function SizeFields() {
  const say = useSay();
  const { width, height } = useStore(settings);
  const empty = say(useStore(start) ? "studio.size.image" : "studio.size.own");
  return (
    <div className="size">
      <NumberField
        name="width"
        label={say("studio.width")}
        value={width}
        placeholder={empty}
        {...SIDE}
        onChange={(value) => {
          change({ width: value });
        }}
      />
      <button
        type="button"
        className="swap"
        aria-label={say("studio.swap")}
        title={say("studio.swap")}
        onClick={() => {
          change({ width: height, height: width });
        }}
      >
        ⇄
      </button>
      <NumberField
        name="height"
        label={say("studio.height")}
        value={height}
        placeholder={empty}
        {...SIDE}
        onChange={(value) => {
          change({ height: value });
        }}
      />
    </div>
  );
}
