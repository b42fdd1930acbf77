/** Values as JSON has them, with whole 64-bit integers as bigint (see `api/json`). */

export type Json = null | boolean | number | bigint | string | readonly Json[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: Json | undefined;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !isList(value);
}

export function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

/** Ids and names as text, whether a file wrote them as text or as numbers. */
export function asText(value: Json | undefined): string {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "bigint" ? value.toString() : "";
}
