import type { ReactNode } from "react";

/** A table that may be wider than the page and has nothing to focus in it: the arrow keys scroll it too. */
export function Scrolled({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="scrolled" role="group" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}
