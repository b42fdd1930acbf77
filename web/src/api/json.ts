/**
 * JSON in which integers stay whole. A seed has 64 bits, a number here has 53: larger integers are bigints, wherever
 * they stand (graphs keep seeds in bare lists).
 */

const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LARGE = /^-?\d{16,}$/;
const MARK = "\u0000large:";
const WRITTEN_MARK = /"\\u0000large:(-?\d+)"/g;

export function parse(text: string): unknown {
  const marked = text.replace(STRING_OR_NUMBER, (token) =>
    LARGE.test(token) && !Number.isSafeInteger(Number(token)) ? JSON.stringify(MARK + token) : token,
  );
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

export function stringify(value: unknown, indent?: number): string {
  const text = JSON.stringify(
    value,
    (_key, inner: unknown) => (typeof inner === "bigint" ? MARK + inner.toString() : inner),
    indent,
  );
  return text.replace(WRITTEN_MARK, "$1");
}
