import { useState } from "react";

import { loadModel, readModels, unloadModel, type ModelFile } from "../api/system";
import { useSay } from "../language/say";
import { bytes } from "../parts/format";
import { Notice } from "../parts/Notice";
import { useAction } from "../parts/useAction";
import { useAsked } from "../parts/useAsked";
import { InspectionPanel } from "./InspectionPanel";

/** Every model file there is, and what each one is. */
export function ModelsCard() {
  const say = useSay();
  const { answer, error, again } = useAsked(readModels);
  const [text, setText] = useState("");
  const [inspected, setInspected] = useState<ModelFile | null>(null);
  const action = useAction();
  const shown = answer?.models.filter((model) =>
    `${model.folder} ${model.name}`.toLowerCase().includes(text.toLowerCase()),
  );
  const change = (model: ModelFile) => {
    action.run(async () => {
      await (model.loaded ? unloadModel(model.name) : loadModel(model.name));
      again();
    });
  };
  return (
    <section className="card wide" aria-label={say("system.models")}>
      <div className="row spread">
        <h2>{say("system.models")}</h2>
        <input
          type="search"
          aria-label={say("system.models.filter")}
          placeholder={say("system.models.filter")}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
          }}
        />
      </div>
      <Notice error={error ?? action.error} />
      <div className="scrolled">
        <table>
          <thead>
            <tr>
              <th scope="col">{say("system.models.folder")}</th>
              <th scope="col">{say("system.models.name")}</th>
              <th scope="col" className="number">
                {say("system.models.size")}
              </th>
              <td />
            </tr>
          </thead>
          <tbody>
            {shown?.map((model) => (
              <ModelRow
                key={`${model.folder}/${model.name}`}
                model={model}
                busy={action.busy}
                onInspect={() => {
                  setInspected(model);
                }}
                onChange={() => {
                  change(model);
                }}
              />
            ))}
          </tbody>
        </table>
      </div>
      {inspected && (
        <InspectionPanel
          key={`${inspected.folder}/${inspected.name}`}
          folder={inspected.folder}
          name={inspected.name}
          onClose={() => {
            setInspected(null);
          }}
        />
      )}
    </section>
  );
}

interface RowProps {
  model: ModelFile;
  busy: boolean;
  onInspect: () => void;
  onChange: () => void;
}

function ModelRow({ model, busy, onInspect, onChange }: RowProps) {
  const say = useSay();
  const { name } = model;
  return (
    <tr>
      <td>{model.folder}</td>
      <td>
        {name} {model.loaded && <span className="badge good">{say("system.models.loaded")}</span>}{" "}
        {model.in_package && <span className="badge">{say("system.models.package")}</span>}
      </td>
      <td className="number">{bytes(model.bytes)}</td>
      <td>
        <div className="row">
          <button type="button" aria-label={say("system.inspect.one", { name })} onClick={onInspect}>
            {say("system.inspect")}
          </button>
          {model.folder === "checkpoints" && (
            <button
              type="button"
              disabled={busy}
              aria-label={say(model.loaded ? "system.unload.one" : "system.load.one", { name })}
              onClick={onChange}
            >
              {say(model.loaded ? "system.unload" : "system.load")}
            </button>
          )}
        </div>
      </td>
    </tr>
  );
}
