/**
 * Where a file keeps the value of each widget of a node. Reads the values, and writes changed values into the places
 * that the file has for them; everything else in the list stays as the file has it.
 */
import { stringify } from "../../api/json";
import type { InputDeclaration, NodeDeclaration } from "./catalogue";
import { CONTROLS, newNode, type Control, type GraphNode } from "./document";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";

/** What the upload button of a picture list leaves in the list of values. */
export const UPLOAD_MARK = "image";
/** In place of a node inside a subgraph: the subgraph's own input. */
export const OWN_WIDGET = "-1";

interface Place {
  readonly value: number;
  /** Where the list says what happens to a seed after a run; null where it does not. */
  readonly control: number | null;
}

export interface FiledWidgets {
  readonly values: Readonly<Record<string, Json>>;
  readonly controls: Readonly<Record<string, Control>>;
  readonly places: ReadonlyMap<string, Place>;
  /** How many entries of the list belong to widgets. */
  readonly used: number;
}

/** The values that a node's JSON in a file lists. */
export function readWidgets(declaration: NodeDeclaration, filed: JsonObject): FiledWidgets {
  const listed = filed.widgets_values;
  if (isObject(listed)) return readNamed(declaration.inputs, listed);
  const list = isList(listed) ? listed : [];
  return declaration.virtual === "subgraph"
    ? readShown(shownWidgets(filed.properties, declaration.inputs), list)
    : readList(declaration.inputs.filter((input) => input.widget !== null), list); // prettier-ignore
}

function readNamed(inputs: readonly InputDeclaration[], listed: JsonObject): FiledWidgets {
  const values: Record<string, Json> = {};
  for (const { name } of inputs) if (listed[name] !== undefined) values[name] = listed[name];
  return { values, controls: {}, places: new Map(), used: 0 };
}

/** A subgraph's node lists the values of its own widgets among those of nodes inside, and has notes of which is which. */
function readShown(shown: readonly (readonly [string, string])[], list: readonly Json[]): FiledWidgets {
  const values: Record<string, Json> = {};
  const places = new Map<string, Place>();
  for (const [at, [holder, name]] of shown.entries()) {
    if (holder !== OWN_WIDGET) continue;
    places.set(name, { value: at, control: null });
    const value = list[at] ?? null;
    if (value !== null) values[name] = value;
  }
  return { values, controls: {}, places, used: shown.length };
}

/** Assigns the entries of the bare list to the widgets in their order; some widgets have a second entry. */
function readList(widgets: readonly InputDeclaration[], list: readonly Json[]): FiledWidgets {
  const values: Record<string, Json> = {};
  const controls: Record<string, Control> = {};
  const places = new Map<string, Place>();
  let at = 0;
  for (const [index, input] of widgets.entries()) {
    if (at >= list.length) break;
    const value = at++;
    values[input.name] = list[value] ?? null;
    const control = input.seed ? controlAt(list, at, widgets.length - index - 1) : null;
    if (input.seed) controls[input.name] = control ?? "fixed";
    places.set(input.name, { value, control: control === null ? null : at++ });
    if (input.upload && list[at] === UPLOAD_MARK) at += 1;
  }
  return { values, controls, places, used: at };
}

/** What happens to a seed after a run, if the list says so at this place. */
function controlAt(list: readonly Json[], at: number, widgetsLeft: number): Control | null {
  const found = list[at];
  if (isControl(found)) return found;
  // Very old files have a truth value in its place, so that there is one value too many.
  if (typeof found === "boolean" && list.length - at > widgetsLeft) return found ? "randomize" : "fixed";
  return null;
}

export function isControl(value: Json | undefined): value is Control {
  return CONTROLS.some((control) => control === value);
}

/** The widgets that a subgraph's node shows: a node inside, or itself, and the widget's name. */
export function shownWidgets(
  properties: Json | undefined,
  inputs: readonly InputDeclaration[],
): [string, string][] {
  const noted = notedWidgets(properties) ?? [];
  const known = noted.map((pair): [string, string] =>
    isList(pair) ? [asText(pair[0]), asText(pair[1])] : ["", ""],
  );
  const own = inputs.filter((input) => input.widget !== null).map((input) => input.name);
  const missing = own.filter((name) => !known.some(([holder, one]) => holder === OWN_WIDGET && one === name));
  return [...known, ...missing.map((name): [string, string] => [OWN_WIDGET, name])];
}

function notedWidgets(properties: Json | undefined): readonly Json[] | null {
  const noted = isObject(properties) ? properties.proxyWidgets : undefined;
  return isList(noted) ? noted : null;
}

/** What has to change in a node's JSON so that it says the node's values; nothing where it says them already. */
export function writeWidgets(declaration: NodeDeclaration, node: GraphNode): JsonObject {
  const filed = node.rest;
  const all = declaration.inputs.filter((input) => input.widget !== null);
  if (!isFiled(filed)) return { widgets_values: listAll(all, node) };
  const read = readWidgets(declaration, filed);
  const blank = newNode(declaration, node.id, node.position);
  const changed = all.filter(({ name }) => {
    const [value, control] = [node.values[name], node.controls[name]];
    const filedValue = name in read.values ? read.values[name] : blank.values[name];
    return (
      (value !== undefined && !same(value, filedValue)) ||
      (control !== undefined && control !== (read.controls[name] ?? blank.controls[name]))
    );
  });
  if (changed.length === 0) return {};
  const values = Object.fromEntries(changed.map(({ name }) => [name, node.values[name] ?? null]));
  return {
    ...(isObject(filed.widgets_values)
      ? { widgets_values: { ...filed.widgets_values, ...values } }
      : writeList(declaration, node, read, changed)),
    ...(isObject(filed.widgets_values_named)
      ? { widgets_values_named: { ...filed.widgets_values_named, ...values } }
      : {}),
  };
}

function writeList(
  declaration: NodeDeclaration,
  node: GraphNode,
  { places, controls, used }: FiledWidgets,
  changed: readonly InputDeclaration[],
): JsonObject {
  const { widgets_values: listed, properties } = node.rest;
  const list = isList(listed) ? [...listed] : [];
  const hasPlaces = changed.every(({ name }) => {
    const place = places.get(name);
    return place && (place.control !== null || node.controls[name] === controls[name]);
  });
  if (!hasPlaces) {
    const widgets = declaration.inputs.filter((input) => input.widget !== null);
    return { widgets_values: [...listAll(widgets, node), ...list.slice(used)] };
  }
  for (const { name } of changed) {
    const place = places.get(name);
    if (place) setPlace(list, place, node.values[name] ?? null, node.controls[name], controls[name]);
  }
  const noted = declaration.virtual === "subgraph" ? notedWidgets(properties) : null;
  if (noted === null || !isObject(properties) || list.length <= noted.length) return { widgets_values: list };
  // The notes say what each entry of the list is, so an entry behind them needs a note of its own.
  const shown = shownWidgets(properties, declaration.inputs).slice(noted.length, list.length);
  return { widgets_values: list, properties: { ...properties, proxyWidgets: [...noted, ...shown] } };
}

function setPlace(list: Json[], place: Place, value: Json, control?: Control, filed?: Control): void {
  while (list.length < place.value) list.push(null);
  list[place.value] = value;
  // A control that has not changed keeps the spelling of the file.
  if (place.control !== null && control !== undefined && control !== filed) list[place.control] = control;
}

function listAll(widgets: readonly InputDeclaration[], node: GraphNode): Json[] {
  return widgets.flatMap((input) => [
    node.values[input.name] ?? null,
    ...(input.seed ? [node.controls[input.name] ?? "fixed"] : []),
    ...(input.upload ? [UPLOAD_MARK] : []),
  ]);
}

/** Whether something comes from a file; what is made here has nothing to keep. */
export function isFiled(filed: JsonObject): boolean {
  return Object.keys(filed).length > 0;
}

export function same(one: Json | undefined, other: Json | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  return Object.is(one, other) || stringify(one) === stringify(other);
}
