/**
 * The kinds of node there are: `/object_info` read into declarations, and the few kinds that exist in editors only
 * (reroutes, primitives, notes, the edges of subgraphs). Knows nothing of a particular graph.
 */
import { asText, isList, isObject, type Json, type JsonObject } from "./json";

export type WidgetKind = "integer" | "float" | "text" | "choice" | "boolean";
export type VirtualKind = "reroute" | "primitive" | "note" | "subgraph" | "edge";

/** The nodes inside a subgraph that stand for its own inputs and outputs: their kind, which is their id too. */
export const INPUT_EDGE = "-10";
export const OUTPUT_EDGE = "-20";

export interface InputDeclaration {
  readonly name: string;
  readonly type: string;
  readonly optional: boolean;
  /** How a value is entered; null where only a link will do. */
  readonly widget: WidgetKind | null;
  readonly initial: Json;
  readonly choices: readonly string[];
  readonly minimum: number | null;
  readonly maximum: number | null;
  readonly step: number | null;
  readonly multiline: boolean;
  /** A seed, which may change by itself after every run. */
  readonly seed: boolean;
  /** Pictures can be uploaded to the list of choices. */
  readonly upload: boolean;
  readonly help: string;
}

export interface OutputDeclaration {
  readonly name: string;
  readonly type: string;
}

export interface NodeDeclaration {
  readonly type: string;
  readonly title: string;
  readonly category: string;
  readonly help: string;
  readonly inputs: readonly InputDeclaration[];
  readonly outputs: readonly OutputDeclaration[];
  readonly isOutput: boolean;
  readonly virtual: VirtualKind | null;
}

export type Catalogue = ReadonlyMap<string, NodeDeclaration>;

const WIDGETS: Readonly<Record<string, WidgetKind>> = {
  INT: "integer",
  FLOAT: "float",
  STRING: "text",
  BOOLEAN: "boolean",
  COMBO: "choice",
};

const SEED_NAMES = new Set(["seed", "noise_seed"]);

export function socket(name: string, type: string, optional = false): InputDeclaration {
  return {
    name,
    type,
    optional,
    widget: null,
    initial: null,
    choices: [],
    minimum: null,
    maximum: null,
    step: null,
    multiline: false,
    seed: false,
    upload: false,
    help: "",
  };
}

/** An input that is entered in the node, as a plain widget of its type. */
export function widgetInput(name: string, type: string, initial: Json, multiline = false): InputDeclaration {
  return { ...socket(name, type), widget: WIDGETS[type] ?? "text", initial, multiline };
}

export function virtualNode(
  type: string,
  title: string,
  kind: VirtualKind,
  parts: Partial<NodeDeclaration>,
): NodeDeclaration {
  return {
    type,
    title,
    category: "editor",
    help: "",
    inputs: [],
    outputs: [],
    isOutput: false,
    virtual: kind,
    ...parts,
  };
}

const NOTE_INPUTS = [widgetInput("text", "STRING", "", true)];

const EDITOR_NODES: readonly NodeDeclaration[] = [
  virtualNode("Reroute", "Reroute", "reroute", {
    inputs: [socket("", "*")],
    outputs: [{ name: "", type: "*" }],
  }),
  virtualNode("PrimitiveNode", "Primitive", "primitive", { outputs: [{ name: "value", type: "*" }] }),
  virtualNode("Note", "Note", "note", { inputs: NOTE_INPUTS }),
  virtualNode("MarkdownNote", "Markdown note", "note", { inputs: NOTE_INPUTS }),
  virtualNode(INPUT_EDGE, "Inputs", "edge", {}),
  virtualNode(OUTPUT_EDGE, "Outputs", "edge", {}),
];

export const EMPTY_CATALOGUE: Catalogue = new Map();

export function readCatalogue(info: Json): Catalogue {
  const found = new Map(EDITOR_NODES.map((node) => [node.type, node]));
  for (const [type, described] of Object.entries(isObject(info) ? info : {})) {
    if (isObject(described)) found.set(type, readNode(type, described));
  }
  return found;
}

function readNode(type: string, described: JsonObject): NodeDeclaration {
  const names = textList(described.output_name);
  return {
    type,
    title: text(described.display_name) || type,
    category: text(described.category),
    help: text(described.description),
    inputs: readInputs(described),
    outputs: list(described.output).map((output, index) => {
      const outputType = isList(output) ? "COMBO" : text(output);
      const name = names[index] ?? "";
      return { type: outputType, name: name === "" ? outputType : name };
    }),
    isOutput: described.output_node === true,
    virtual: null,
  };
}

function readInputs(described: JsonObject): InputDeclaration[] {
  const groups = isObject(described.input) ? described.input : {};
  const orders = isObject(described.input_order) ? described.input_order : {};
  return ["required", "optional"].flatMap((group) => {
    const inputs = groups[group];
    if (!isObject(inputs)) return [];
    const order = orders[group] ? textList(orders[group]) : Object.keys(inputs);
    return order.map((name) => readInput(name, list(inputs[name]), group === "optional"));
  });
}

function readInput(name: string, declared: readonly Json[], optional: boolean): InputDeclaration {
  const options = isObject(declared[1]) ? declared[1] : {};
  // Lists of choices come in two spellings: the list itself in place of the type, or COMBO with options.
  const listed = isList(declared[0]);
  const type = listed ? "COMBO" : text(declared[0]);
  const choices = textList(listed ? declared[0] : options.options);
  const widget = options.forceInput === true ? null : (WIDGETS[type] ?? null);
  return {
    name,
    type,
    optional,
    widget,
    initial: options.default ?? initialValue(widget, choices, number(options.min)),
    choices,
    minimum: number(options.min),
    maximum: number(options.max),
    step: number(options.step),
    multiline: options.multiline === true,
    seed: widget === "integer" && (SEED_NAMES.has(name) || Boolean(options.control_after_generate)),
    upload: options.image_upload === true,
    help: text(options.tooltip),
  };
}

function initialValue(widget: WidgetKind | null, choices: readonly string[], minimum: number | null): Json {
  if (widget === "choice") return choices[0] ?? "";
  if (widget === "text") return "";
  if (widget === "boolean") return false;
  return widget === null ? null : Math.max(0, minimum ?? 0);
}

/** The catalogue with one more picture to choose wherever pictures are uploaded. */
export function withUpload(catalogue: Catalogue, name: string): Catalogue {
  const changed = [...catalogue].map(([type, node]): [string, NodeDeclaration] => {
    if (!node.inputs.some((input) => input.upload && !input.choices.includes(name))) return [type, node];
    const inputs = node.inputs.map((input) =>
      input.upload ? { ...input, choices: [...new Set([...input.choices, name])].sort() } : input,
    );
    return [type, { ...node, inputs }];
  });
  return new Map(changed);
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

function number(value: Json | undefined): number | null {
  return typeof value === "number" || typeof value === "bigint" ? Number(value) : null;
}

function list(value: Json | undefined): readonly Json[] {
  return isList(value) ? value : [];
}

function textList(value: Json | undefined): string[] {
  return list(value).map(asText);
}
