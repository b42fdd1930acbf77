/** The graph everybody starts from: text to image. Knows nothing of the screen. */
import type { Catalogue } from "./catalogue";
import { EMPTY_DOCUMENT, type GraphDocument, type Point } from "./document";
import { addNode, connect, setValue } from "./edits";

interface Start {
  readonly id: string;
  readonly type: string;
  readonly at: Point;
  readonly title?: string;
  readonly fed?: Readonly<Record<string, readonly [string, number]>>;
}

/** The ids are those that everybody's scripts for this graph use. */
const STARTS: readonly Start[] = [
  { id: "4", type: "CheckpointLoaderSimple", at: { x: 0, y: 160 } },
  { id: "5", type: "EmptyLatentImage", at: { x: 350, y: 470 } },
  { id: "6", type: "CLIPTextEncode", title: "Prompt", at: { x: 350, y: 0 }, fed: { clip: ["4", 1] } },
  {
    id: "7",
    type: "CLIPTextEncode",
    title: "Negative prompt",
    at: { x: 350, y: 235 },
    fed: { clip: ["4", 1] },
  },
  {
    id: "3",
    type: "KSampler",
    at: { x: 740, y: 60 },
    fed: { model: ["4", 0], positive: ["6", 0], negative: ["7", 0], latent_image: ["5", 0] },
  },
  { id: "8", type: "VAEDecode", at: { x: 1090, y: 60 }, fed: { samples: ["3", 0], vae: ["4", 2] } },
  { id: "9", type: "SaveImage", at: { x: 1390, y: 60 }, fed: { images: ["8", 0] } },
];

export function firstGraph(catalogue: Catalogue, prompt: string, side: number): GraphDocument {
  let document = EMPTY_DOCUMENT;
  for (const start of STARTS) {
    const declaration = catalogue.get(start.type);
    if (!declaration) return EMPTY_DOCUMENT;
    document = placed(document, start, addNode(EMPTY_DOCUMENT, declaration, start.at));
  }
  document = setValue(document, "6", "text", prompt);
  for (const input of ["width", "height"]) document = setValue(document, "5", input, side);
  for (const start of STARTS) {
    for (const [input, [from, output]] of Object.entries(start.fed ?? {})) {
      document = connect(catalogue, document, { from, output, to: start.id, input });
    }
  }
  return document;
}

function placed(document: GraphDocument, start: Start, single: GraphDocument): GraphDocument {
  const [node] = single.nodes.values();
  if (!node) return document;
  const nodes = new Map(document.nodes).set(start.id, { ...node, id: start.id, title: start.title ?? null });
  return { ...document, nodes };
}
