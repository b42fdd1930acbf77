/** Numbers as they are typed: read, kept within limits, stepped. Knows nothing of the screen. */
import type { InputDeclaration } from "../../model/catalogue";

type Limits = Pick<InputDeclaration, "minimum" | "maximum" | "step" | "widget">;

/** The number a text means; null if it means none. */
export function readNumber(text: string, { widget }: Limits): number | bigint | null {
  const trimmed = text.trim().replace(",", ".");
  if (widget !== "integer")
    return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed) ? Number(trimmed) : null;
  return /^[-+]?\d+$/.test(trimmed) ? whole(BigInt(trimmed.replace("+", ""))) : null;
}

/** As a number where that keeps every digit. */
function whole(value: bigint): number | bigint {
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

export function isWithin(value: number | bigint, { minimum, maximum }: Limits): boolean {
  return (minimum === null || value >= minimum) && (maximum === null || value <= maximum);
}

export function clamped(value: number | bigint, { minimum, maximum, widget }: Limits): number | bigint {
  if (minimum !== null && value < minimum) return minimum;
  if (maximum !== null && value > maximum) return widget === "integer" ? whole(BigInt(maximum)) : maximum;
  return value;
}

/** The next number up or down that is a whole count of steps from the minimum. */
export function stepped(value: number | bigint, direction: 1 | -1, limits: Limits): number | bigint {
  if (typeof value === "bigint") return clamped(whole(value + BigInt(direction)), limits);
  const step = limits.step ?? (limits.widget === "integer" ? 1 : 0.1);
  const origin = limits.minimum ?? 0;
  const count = (value - origin) / step;
  const nearest = Math.round(count);
  const onStep = Math.abs(count - nearest) < 1e-6;
  const next = onStep ? nearest + direction : direction > 0 ? Math.ceil(count) : Math.floor(count);
  return clamped(rounded(origin + next * step, step), limits);
}

function rounded(value: number, step: number): number {
  const decimals = (/\.(\d+)|e-(\d+)/.exec(String(step))?.[1] ?? "").length;
  return Number(value.toFixed(Math.max(decimals, 2)));
}
