import { useSay } from "../language/say";
import { FileButton } from "../parts/FileButton";
import type { Deed } from "./mask";

interface Props {
  erase: boolean;
  onErase: (erase: boolean) => void;
  radius: number;
  largest: number;
  onRadius: (radius: number) => void;
  canUndo: boolean;
  onUndo: () => void;
  onDeed: (deed: Deed) => void;
}

export function MaskTools({ erase, onErase, radius, largest, onRadius, canUndo, onUndo, onDeed }: Props) {
  const say = useSay();
  const fromFile = async (file: File) => {
    onDeed({ kind: "picture", picture: await createImageBitmap(file) });
  };
  return (
    <div className="row tools">
      <div className="switch" role="group">
        <button
          type="button"
          aria-pressed={!erase}
          onClick={() => {
            onErase(false);
          }}
        >
          {say("studio.mask.draw")}
        </button>
        <button
          type="button"
          aria-pressed={erase}
          onClick={() => {
            onErase(true);
          }}
        >
          {say("studio.mask.erase")}
        </button>
      </div>
      <label className="check">
        <span>{say("studio.mask.size")}</span>
        <input
          type="range"
          min={1}
          max={largest}
          value={radius}
          onChange={(event) => {
            onRadius(event.target.valueAsNumber);
          }}
        />
      </label>
      <button type="button" disabled={!canUndo} onClick={onUndo}>
        {say("studio.mask.undo")}
      </button>
      <button
        type="button"
        onClick={() => {
          onDeed({ kind: "invert" });
        }}
      >
        {say("studio.mask.invert")}
      </button>
      <button
        type="button"
        onClick={() => {
          onDeed({ kind: "clear" });
        }}
      >
        {say("studio.mask.clear")}
      </button>
      <FileButton label={say("studio.mask.file")} accept="image/*" onFile={(file) => void fromFile(file)} />
    </div>
  );
}
