/** Which measurements are looked at. */

import type { Measurement } from "../api/records";

export interface Filter {
  kind: string;
  run: string;
  text: string;
}

export const EVERYTHING: Filter = { kind: "", run: "", text: "" };

export function filtered(all: readonly Measurement[], { kind, run, text }: Filter): Measurement[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((one) => {
    if (kind !== "" && one.kind !== kind) return false;
    if (run !== "" && one.run !== run) return false;
    const said = [one.point, one.model, one.preset, one.system, one.device, one.run, one.status]
      .join(" ")
      .toLowerCase();
    return words.every((word) => said.includes(word));
  });
}
