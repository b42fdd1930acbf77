/**
 * Opens a workflow, saves it and lists where the two differ. `testing` also runs it over a folder of files: see
 * `model/round-trip.test.ts`.
 */
import { parse, stringify } from "../../api/json";
import type { Catalogue } from "../model/catalogue";
import { isEditorFormat } from "../model/editor-reading";
import { writeEditor } from "../model/editor-writing";
import { isList, isObject, type Json } from "../model/json";
import { openText } from "../model/opening";

/** The paths at which a saved workflow differs from the one that was opened; null for other JSON. */
export function roundTrip(catalogue: Catalogue, text: string): string[] | null {
  const before = parse(text) as Json;
  if (!isEditorFormat(before)) return null;
  const after = parse(stringify(writeEditor(catalogue, openText(catalogue, text)))) as Json;
  return [...differences(before, after)];
}

function* differences(before: Json | undefined, after: Json | undefined, path = ""): Generator<string> {
  if (isList(before) && isList(after)) {
    for (let at = 0; at < Math.max(before.length, after.length); at += 1)
      yield* differences(before[at], after[at], `${path}[${at}]`);
  } else if (isObject(before) && isObject(after)) {
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
      yield* differences(before[key], after[key], `${path}.${key}`);
  } else if (!Object.is(before, after)) {
    yield `${path}: ${shown(before)} became ${shown(after)}`;
  }
}

function shown(value: Json | undefined): string {
  return value === undefined ? "nothing" : stringify(value).slice(0, 80);
}
