/** Numbers and times for people. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit] ?? ""}`;
}

export function seconds(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  if (count === 0) return "0 s";
  if (count < 0.1) return `${(count * 1000).toPrecision(2)} ms`;
  if (count < 60) return `${count.toFixed(count < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(count / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(count % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Seconds since 1970 in the reader's own time and language. */
export function moment(
  at: number | null | undefined,
  language: string,
  timeStyle: "short" | "medium" = "medium",
): string {
  if (at === null || at === undefined) return "–";
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle }).format(at * 1000);
}

/** Enough digits to tell values apart, and no more. */
export function short(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return Number(value.toPrecision(size >= 1000 ? 5 : 4)).toString();
}
