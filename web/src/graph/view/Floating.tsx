import { useEffect, useRef, type ReactNode } from "react";
import { createPortal } from "react-dom";

import type { Point } from "../model/document";

interface Props {
  readonly at: Point;
  readonly label: string;
  readonly close: () => void;
  readonly children: ReactNode;
}

const MARGIN = 8;

/** A small window at a place on the screen, kept within it; a click beside it closes it. */
export function Floating({ at, label, close, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const outside = (event: PointerEvent) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) close();
    };
    window.addEventListener("pointerdown", outside, true);
    return () => {
      window.removeEventListener("pointerdown", outside, true);
    };
  }, [close]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(MARGIN, Math.min(at.x, window.innerWidth - width - MARGIN))}px`;
    element.style.top = `${Math.max(MARGIN, Math.min(at.y, window.innerHeight - height - MARGIN))}px`;
  }, [at]);
  return createPortal(
    <div
      ref={box}
      className="graph-floating"
      role="dialog"
      aria-label={label}
      style={{ left: at.x, top: at.y }}
    >
      {children}
    </div>,
    document.body,
  );
}
