import { useEffect, useRef, useState, type KeyboardEvent, type PointerEvent } from "react";

import { useSay } from "../language/say";
import { MaskTools } from "./MaskTools";
import { contextOf, draw, fileOf, isBlank, perform, type Deed, type Point } from "./mask";
import { setMask, type Start } from "./start";

const COLOUR = "#ff7a1a";
const BRUSH_STEP = 1.25;

/** A brush over the start picture. */
export function MaskPainter({ start, onClose }: { start: Start; onClose: () => void }) {
  const say = useSay();
  const dialog = useRef<HTMLDialogElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const stroke = useRef<Point[] | null>(null);
  const [deeds, setDeeds] = useState<Deed[]>([]);
  const [erase, setErase] = useState(false);
  const [radius, setRadius] = useState(Math.max(4, Math.round(Math.min(start.width, start.height) / 12)));
  const [pointer, setPointer] = useState<Point | null>(null);
  const largest = Math.round(Math.max(start.width, start.height) / 2);

  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  useEffect(() => {
    if (start.mask)
      void createImageBitmap(start.mask).then((picture) => {
        setDeeds([{ kind: "picture", picture }]);
      });
  }, [start.mask]);
  useEffect(() => {
    if (canvas.current) draw(canvas.current, deeds, COLOUR);
  }, [deeds]);

  const add = (deed: Deed) => {
    setDeeds((before) => [...before, deed]);
  };
  const undo = () => {
    setDeeds((before) => before.slice(0, -1));
  };
  const at = (event: PointerEvent): Point => {
    const box = event.currentTarget.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * start.width,
      y: ((event.clientY - box.top) / box.height) * start.height,
    };
  };
  const down = (event: PointerEvent) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    stroke.current = [at(event)];
    paint();
  };
  const go = (event: PointerEvent) => {
    const point = at(event);
    setPointer(point);
    if (!stroke.current) return;
    stroke.current.push(point);
    paint();
  };
  const paint = () => {
    if (!canvas.current || !stroke.current) return;
    const points = stroke.current.slice(-2);
    perform(contextOf(canvas.current), { kind: "stroke", points, radius, erase }, COLOUR);
  };
  const up = () => {
    if (stroke.current) add({ kind: "stroke", points: stroke.current, radius, erase });
    stroke.current = null;
  };
  const use = async () => {
    if (!canvas.current) return;
    // A mask of nothing would keep the picture as it is.
    setMask(isBlank(canvas.current) ? null : await fileOf(canvas.current));
    onClose();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "[") setRadius((before) => Math.max(1, Math.round(before / BRUSH_STEP)));
    else if (event.key === "]") setRadius((before) => Math.min(largest, Math.ceil(before * BRUSH_STEP)));
    else if (event.key === "x") setErase((before) => !before);
    else if (event.key === "z" && (event.ctrlKey || event.metaKey)) undo();
    else return;
    event.preventDefault();
  };

  return (
    <dialog ref={dialog} className="painter" aria-labelledby="mask-title" onClose={onClose} onKeyDown={keys}>
      <h2 id="mask-title">{say("studio.mask.title")}</h2>
      <MaskTools
        erase={erase}
        onErase={setErase}
        radius={radius}
        largest={largest}
        onRadius={setRadius}
        canUndo={deeds.length > 0}
        onUndo={undo}
        onDeed={add}
      />
      <div className="painting">
        <div className="sheet">
          <img src={start.url} alt="" draggable={false} />
          {}
          <canvas
            ref={canvas}
            width={start.width}
            height={start.height}
            role="img"
            aria-label={say("studio.mask.canvas")}
            onPointerDown={down}
            onPointerMove={go}
            onPointerUp={up}
            onPointerCancel={up}
            onPointerLeave={() => {
              setPointer(null);
            }}
          />
          {pointer && (
            <svg viewBox={`0 0 ${start.width} ${start.height}`} aria-hidden="true">
              <circle cx={pointer.x} cy={pointer.y} r={radius} />
            </svg>
          )}
        </div>
      </div>
      <p className="quiet small keys">{say("studio.mask.keys")}</p>
      <div className="row end">
        <button type="button" onClick={onClose}>
          {say("studio.mask.cancel")}
        </button>
        <button type="button" className="primary" onClick={() => void use()}>
          {say("studio.mask.use")}
        </button>
      </div>
    </dialog>
  );
}
