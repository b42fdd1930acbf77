import { useEffect, useState, type DragEvent } from "react";

import { useStore } from "../connection/store";
import { useSay } from "../language/say";
import { FileButton } from "../parts/FileButton";
import { Notice } from "../parts/Notice";
import { NumberField } from "../parts/NumberField";
import { useAction } from "../parts/useAction";
import { MaskPainter } from "./MaskPainter";
import { change, settings } from "./settings";
import { clearStart, setMask, start, startFrom, type Start } from "./start";

const USUAL = { image: "0.75", mask: "1" };

/** A picture to start from instead of from noise alone, and which part of it to paint anew. */
export function StartFields() {
  const say = useSay();
  const current = useStore(start);
  const { run, error } = useAction();
  const take = (file: File) => {
    run(() => startFrom(file, file.name));
  };
  useEffect(() => {
    const pasted = (event: ClipboardEvent) => {
      const file = pictureIn(event.clipboardData);
      if (file) run(() => startFrom(file, file.name));
    };
    window.addEventListener("paste", pasted);
    return () => {
      window.removeEventListener("paste", pasted);
    };
  }, [run]);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    const file = pictureIn(event.dataTransfer);
    if (file) take(file);
  };
  return (
    <fieldset
      className="group"
      onDrop={drop}
      onDragOver={(event) => {
        event.preventDefault();
      }}
    >
      <legend>{say("studio.start")}</legend>
      {current ? (
        <Chosen current={current} />
      ) : (
        <div className="row">
          <FileButton label={say("studio.start.choose")} accept="image/*" onFile={take} />
          <span className="quiet small">{say("studio.start.drop")}</span>
        </div>
      )}
      <Notice error={error} />
    </fieldset>
  );
}

function Chosen({ current }: { current: Start }) {
  const say = useSay();
  const { strength } = useStore(settings);
  const [painting, setPainting] = useState(false);
  return (
    <div className="start">
      <div className="start-picture">
        <img src={current.url} alt={say("studio.start.alt", { name: current.name })} />
        {current.maskUrl && <img className="start-mask" src={current.maskUrl} alt={say("studio.mask.on")} />}
      </div>
      <div className="stack tight">
        <NumberField
          name="strength"
          label={say("studio.strength")}
          value={strength}
          min={0.01}
          max={1}
          step={0.01}
          placeholder={say("studio.strength.own", { value: current.mask ? USUAL.mask : USUAL.image })}
          onChange={(value) => {
            change({ strength: value });
          }}
        />
        <button
          type="button"
          onClick={() => {
            setPainting(true);
          }}
        >
          {say(current.mask ? "studio.mask.edit" : "studio.mask.paint")}
        </button>
        {current.mask && (
          <button
            type="button"
            onClick={() => {
              setMask(null);
            }}
          >
            {say("studio.mask.remove")}
          </button>
        )}
        <button type="button" onClick={clearStart}>
          {say("studio.start.remove")}
        </button>
      </div>
      {painting && (
        <MaskPainter
          start={current}
          onClose={() => {
            setPainting(false);
          }}
        />
      )}
    </div>
  );
}

function pictureIn(data: DataTransfer | null): File | undefined {
  return [...(data?.files ?? [])].find((file) => file.type.startsWith("image/"));
}
