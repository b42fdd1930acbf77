/**
 * JSON in which seeds stay whole. A seed has 64 bits, a number here has 53: large ones are bigints.
 */

// A quote inside a text has a backslash before it.
const LARGE_SEED = /(?<!\\)"((?:noise_)?seed)"(\s*:\s*)(\d{16,20})(?=\s*[,}])/g;
const LARGE = /^large:(\d{16,20})$/;
const KEPT = /"\\u0000large:(\d+)"/g;

export function parse(text: string): unknown {
  const marked = text.replace(LARGE_SEED, '"$1"$2"large:$3"');
  return JSON.parse(marked, (key, value: unknown) => {
    if ((key === "seed" || key === "noise_seed") && typeof value === "string") {
      const found = LARGE.exec(value)?.[1];
      if (found !== undefined) return Number.isSafeInteger(Number(found)) ? Number(found) : BigInt(found);
    }
    return value;
  });
}

export function stringify(value: unknown): string {
  const text = JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "bigint" ? `\u0000large:${inner}` : inner,
  );
  return text.replace(KEPT, "$1");
}
