/**
 * Finding a kind of node by words, and adding it where a link waits for it. Knows nothing of the screen.
 */
import type { Catalogue, NodeDeclaration } from "./catalogue";
import { declarationOf, freshNodeId, titleOf, type GraphDocument, type Point } from "./document";
import { addNode, connect } from "./edits";
import { accepts, outputType, refusal } from "./typing";

export type End =
  | { readonly side: "output"; readonly node: string; readonly output: number }
  | { readonly side: "input"; readonly node: string; readonly input: string };

/** Kinds of node that match all words, the best first; only such as the loose end of a link can be joined to. */
export function findKinds(
  catalogue: Catalogue,
  document: GraphDocument,
  words: string,
  end: End | null,
): NodeDeclaration[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return [...catalogue.values()]
    .filter(
      (kind) =>
        kind.virtual !== "primitive" &&
        kind.virtual !== "edge" &&
        (!end || joint(catalogue, document, kind, end) !== null),
    )
    .map((kind) => ({ kind, rank: rankOf(kind, wanted) }))
    .filter(({ rank }) => rank !== null)
    .sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0) || a.kind.title.localeCompare(b.kind.title))
    .map(({ kind }) => kind);
}

function rankOf(kind: NodeDeclaration, words: readonly string[]): number | null {
  const title = kind.title.toLowerCase();
  const all = `${title} ${kind.type.toLowerCase()} ${kind.category.toLowerCase()}`;
  if (!words.every((word) => all.includes(word))) return null;
  const [first = ""] = words;
  if (title.startsWith(first) || kind.type.toLowerCase().startsWith(first)) return 0;
  return words.every((word) => title.includes(word)) ? 1 : 2;
}

/** The socket of a kind of node that fits the loose end: an input's name or an output's place. */
function joint(
  catalogue: Catalogue,
  document: GraphDocument,
  kind: NodeDeclaration,
  end: End,
): string | number | null {
  if (end.side === "output") {
    const given = outputType(catalogue, document, end.node, end.output);
    // A socket made for the type comes before a widget that could take it.
    const fitting = kind.inputs.filter((input) => accepts(input.type, given));
    return (fitting.find((input) => input.widget === null) ?? fitting[0])?.name ?? null;
  }
  const target = document.nodes.get(end.node);
  const declared =
    target && declarationOf(catalogue, target).inputs.find((input) => input.name === end.input);
  const place = kind.outputs.findIndex((output) => declared && accepts(declared.type, output.type));
  return place < 0 ? null : place;
}

export function addJoined(
  catalogue: Catalogue,
  document: GraphDocument,
  kind: NodeDeclaration,
  place: Point,
  end: End | null,
): GraphDocument {
  const added = addNode(document, kind, place);
  const id = freshNodeId(document);
  const socket = end && joint(catalogue, document, kind, end);
  if (end?.side === "output" && typeof socket === "string") {
    return connect(catalogue, added, { from: end.node, output: end.output, to: id, input: socket });
  }
  if (end?.side === "input" && typeof socket === "number") {
    return connect(catalogue, added, { from: id, output: socket, to: end.node, input: end.input });
  }
  return added;
}

export interface Source {
  readonly from: string;
  readonly output: number;
  readonly label: string;
}

/** Outputs already on the canvas that may feed an input. */
export function findSources(
  catalogue: Catalogue,
  document: GraphDocument,
  node: string,
  input: string,
): Source[] {
  return [...document.nodes.values()].flatMap((source) =>
    declarationOf(catalogue, source).outputs.flatMap((output, index) => {
      const ends = { from: source.id, output: index, to: node, input };
      if (refusal(catalogue, document, ends)) return [];
      return [
        {
          from: source.id,
          output: index,
          label: `${titleOf(catalogue, source)} #${source.id} · ${output.name}`,
        },
      ];
    }),
  );
}
