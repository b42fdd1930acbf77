import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { SelectField } from "../parts/SelectField";
import { KNOBS, type Knob } from "./grid";
import { gridPlan, obstacle, plan } from "./gridPlan";

/** Two knobs and their values: every pair of them becomes a picture. */
export function GridFields() {
  const say = useSay();
  const planned = useStore(gridPlan);
  const problem = planned.on ? obstacle(planned, say) : null;
  const knobs = KNOBS.map((knob) => [knob, say(`studio.knob.${knob}`)] as const);
  return (
    <fieldset className="group">
      <legend>{say("studio.grid")}</legend>
      <label className="check">
        <input
          type="checkbox"
          checked={planned.on}
          onChange={(event) => {
            plan({ on: event.target.checked });
          }}
        />
        <span>{say("studio.grid.on")}</span>
      </label>
      {planned.on && (
        <>
          <div className="pair knobs">
            <SelectField
              name="grid-x"
              label={say("studio.grid.x")}
              value={planned.x}
              options={knobs}
              onChange={(value) => {
                plan({ x: value as Knob });
              }}
            />
            <Values
              label={say("studio.grid.values.x")}
              text={planned.xText}
              onChange={(xText) => {
                plan({ xText });
              }}
            />
            <SelectField
              name="grid-y"
              label={say("studio.grid.y")}
              value={planned.y}
              options={knobs}
              onChange={(value) => {
                plan({ y: value as Knob });
              }}
            />
            <Values
              label={say("studio.grid.values.y")}
              text={planned.yText}
              onChange={(yText) => {
                plan({ yText });
              }}
            />
          </div>
          {problem === null ? (
            <p className="quiet small">{say("studio.grid.how")}</p>
          ) : (
            <p className="problem small">{problem}</p>
          )}
        </>
      )}
    </fieldset>
  );
}

function Values({
  label,
  text,
  onChange,
}: {
  label: string;
  text: string;
  onChange: (text: string) => void;
}) {
  return (
    <label className="field">
      <span>{label}</span>
      <input
        type="text"
        value={text}
        onChange={(event) => {
          onChange(event.target.value);
        }}
      />
    </label>
  );
}
