/**
 * Which output may feed which input, why not, and the colour of a type. Knows nothing of the screen.
 */
import type { Catalogue } from "./catalogue";
import { declarationOf, titleOf, type GraphDocument } from "./document";

export interface Ends {
  readonly from: string;
  readonly output: number;
  readonly to: string;
  readonly input: string;
}

export type Refusal =
  | { readonly reason: "missing" }
  | { readonly reason: "itself" }
  | { readonly reason: "circle"; readonly node: string }
  | { readonly reason: "type"; readonly given: string; readonly wanted: string; readonly input: string };

export function accepts(wanted: string, given: string): boolean {
  if (wanted === "*" || given === "*" || wanted === given) return true;
  const givenTypes = new Set(given.split(",").map((type) => type.trim()));
  return wanted.split(",").some((type) => givenTypes.has(type.trim()));
}

/** The type an output carries; a reroute carries what is fed to it. */
export function outputType(
  catalogue: Catalogue,
  document: GraphDocument,
  id: string,
  output: number,
): string {
  const visited = new Set<string>();
  let [node, slot] = [document.nodes.get(id), output];
  while (node && !visited.has(node.id)) {
    visited.add(node.id);
    const declaration = declarationOf(catalogue, node);
    if (declaration.virtual !== "reroute") return declaration.outputs[slot]?.type ?? "*";
    const feeding = document.links.find((link) => link.to === node?.id);
    if (!feeding) return "*";
    [node, slot] = [document.nodes.get(feeding.from), feeding.output];
  }
  return "*";
}

/** Why two sockets cannot be joined; null when they can. */
export function refusal(catalogue: Catalogue, document: GraphDocument, ends: Ends): Refusal | null {
  const [source, target] = [document.nodes.get(ends.from), document.nodes.get(ends.to)];
  if (!source || !target) return { reason: "missing" };
  if (ends.from === ends.to) return { reason: "itself" };
  const declared = declarationOf(catalogue, target).inputs.find((input) => input.name === ends.input);
  if (!declared || !declarationOf(catalogue, source).outputs[ends.output]) return { reason: "missing" };
  const given = outputType(catalogue, document, ends.from, ends.output);
  const wanted = declared.type;
  if (!accepts(wanted, given)) {
    return { reason: "type", given, wanted, input: `${titleOf(catalogue, target)} · ${ends.input}` };
  }
  if (feeds(document, ends.to, ends.from)) return { reason: "circle", node: titleOf(catalogue, target) };
  return null;
}

/** Whether what `upstream` makes reaches `downstream`. */
export function feeds(document: GraphDocument, upstream: string, downstream: string): boolean {
  const next = new Map<string, string[]>();
  for (const link of document.links) next.set(link.from, [...(next.get(link.from) ?? []), link.to]);
  const waiting = [upstream];
  const visited = new Set<string>();
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    if (id === downstream) return true;
    if (visited.has(id)) continue;
    visited.add(id);
    waiting.push(...(next.get(id) ?? []));
  }
  return false;
}

const HUES: Readonly<Record<string, number>> = {
  MODEL: 265,
  CLIP: 48,
  VAE: 0,
  CONDITIONING: 28,
  LATENT: 318,
  IMAGE: 210,
  MASK: 150,
  CONTROL_NET: 172,
  INT: 190,
  FLOAT: 200,
  STRING: 95,
  BOOLEAN: 130,
  COMBO: 70,
};

/** One colour per type, the same on every machine; types nobody foresaw get theirs from their name. */
export function typeColor(type: string): string {
  if (type === "*") return "hsl(0 0% 60%)";
  let hue = HUES[type];
  if (hue === undefined) {
    hue = 0;
    for (const letter of type) hue = (hue * 31 + letter.charCodeAt(0)) % 360;
  }
  return `hsl(${hue} 62% var(--graph-type-lightness, 62%))`;
}
