/**
 * Reads a whole file: its subgraphs first, as the kinds of some of its nodes, then its nodes. Knows nothing of the
 * screen.
 */
import { INPUT_EDGE, OUTPUT_EDGE, type Catalogue } from "./catalogue";
import { NO_SUBGRAPHS, type GraphDocument, type Subgraph } from "./document";
import { objects, readLevel, readSlot, TITLE_HEIGHT } from "./editor-reading";
import { asText, isList, isObject, type Json, type JsonObject } from "./json";
import { withSubgraphs } from "./subgraphs";

const BESIDE = 200;

export function readEditor(kinds: Catalogue, file: JsonObject): GraphDocument {
  const definitions = isObject(file.definitions) ? file.definitions : {};
  const written = objects(definitions.subgraphs).filter((one) => typeof one.id === "string");
  if (written.length === 0) return readLevel(kinds, file);
  // Subgraphs hold nodes that stand for subgraphs: what these look like is known after a first reading.
  const outlines = readSubgraphs(
    kinds,
    written,
    new Map(written.map((one) => [asText(one.id), outline(one)])),
  );
  const subgraphs = readSubgraphs(kinds, written, outlines);
  return { ...readLevel(withSubgraphs(kinds, subgraphs), file), subgraphs };
}

type Subgraphs = GraphDocument["subgraphs"];

function readSubgraphs(kinds: Catalogue, written: readonly JsonObject[], known: Subgraphs): Subgraphs {
  const catalogue = withSubgraphs(kinds, known);
  return new Map(written.map((one) => [asText(one.id), readSubgraph(catalogue, one)]));
}

function outline(written: JsonObject): Subgraph {
  const name = asText(written.name);
  return {
    id: asText(written.id),
    inside: { name, nodes: new Map(), links: [], groups: [], subgraphs: NO_SUBGRAPHS, rest: {} },
    inputs: slots(written.inputs),
    outputs: slots(written.outputs),
  };
}

function readSubgraph(catalogue: Catalogue, written: JsonObject): Subgraph {
  const nodes = objects(written.nodes);
  const [left, right] = [Math.min, Math.max].map((most) => most(0, ...nodes.map((node) => leftOf(node.pos))));
  const edges: JsonObject[] = [
    {
      ...edge(INPUT_EDGE, written.inputNode, (left ?? 0) - BESIDE),
      outputs: objects(written.inputs).map(named),
    },
    {
      ...edge(OUTPUT_EDGE, written.outputNode, (right ?? 0) + 2 * BESIDE),
      inputs: objects(written.outputs).map(named),
    },
  ];
  const { inside, ...rest } = outline(written);
  const level = readLevel(catalogue, { ...written, nodes: [...nodes, ...edges] });
  return { ...rest, inside: { ...level, name: inside.name } };
}

function edge(id: string, written: Json | undefined, beside: number): JsonObject {
  const [x = beside, y = 0] =
    isObject(written) && isList(written.bounding) ? written.bounding.map(Number) : [];
  return { id, type: id, pos: [x, y + TITLE_HEIGHT] };
}

function slots(written: Json | undefined): Subgraph["inputs"] {
  return objects(written).map((slot) => readSlot(named(slot)));
}

/** As a socket of a node would say it. */
function named({ name, type }: JsonObject): JsonObject {
  return { name, type };
}

function leftOf(position: Json | undefined): number {
  return isList(position) ? Number(position[0]) || 0 : 0;
}
