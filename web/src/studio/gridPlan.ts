/** The grid that is being planned in the form. Kept in the browser beside the settings. */

import { store } from "../connection/store";
import type { Say } from "../language/say";
import { MOST_CELLS, unusable, valuesOf, type Axis, type Knob } from "./grid";

export interface GridPlan {
  on: boolean;
  x: Knob;
  y: Knob;
  xText: string;
  yText: string;
}

const REMEMBERED = "calotype.grid";
const USUAL: GridPlan = { on: false, x: "cfg", y: "steps", xText: "2, 4, 8", yText: "10, 20" };

export const gridPlan = store<GridPlan>(remembered());
gridPlan.subscribe(() => {
  localStorage.setItem(REMEMBERED, JSON.stringify(gridPlan.get()));
});

export function plan(changes: Partial<GridPlan>): void {
  gridPlan.set({ ...gridPlan.get(), ...changes });
}

export function axes(of: GridPlan): { x: Axis; y: Axis; cells: number } {
  const x = { knob: of.x, values: valuesOf(of.x, of.xText) };
  const y = { knob: of.y, values: valuesOf(of.y, of.yText) };
  return { x, y, cells: x.values.length * y.values.length };
}

/** Why it cannot be made; null when it can. */
export function obstacle(of: GridPlan, say: Say): string | null {
  const { x, y, cells } = axes(of);
  if (of.x === of.y) return say("studio.grid.same");
  if (cells === 0) return say("studio.grid.empty");
  if (cells > MOST_CELLS) return say("studio.grid.most", { n: cells, most: MOST_CELLS });
  for (const axis of [x, y]) {
    const values = unusable(axis);
    if (values.length > 0)
      return say("studio.grid.unusable", {
        knob: say(`studio.knob.${axis.knob}`),
        values: values.join(", "),
      });
  }
  return null;
}

function remembered(): GridPlan {
  try {
    return { ...USUAL, ...(JSON.parse(localStorage.getItem(REMEMBERED) ?? "{}") as Partial<GridPlan>) };
  } catch {
    return USUAL;
  }
}
