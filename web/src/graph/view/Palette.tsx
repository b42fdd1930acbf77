import { useReactFlow } from "@xyflow/react";
import { useMemo } from "react";

import { useSay } from "../../language/say";
import { linkInto, type GraphDocument, type Point } from "../model/document";
import { connect, disconnect } from "../model/edits";
import { NODE_WIDTH } from "../model/layout";
import { addJoined, findKinds, findSources, type End } from "../model/search";
import { documentOf, type PaletteRequest } from "../state";
import { Floating } from "./Floating";
import { SearchList, type Item } from "./SearchList";
import { useSelected, useSession } from "./session-context";

/** Finds a kind of node by words and adds it, joined to the link that waits for it. */
export function Palette() {
  const request = useSelected((state) => state.palette);
  return request && <OpenPalette request={request} />;
}

const GAP = 60;

function OpenPalette({ request }: { request: PaletteRequest }) {
  const say = useSay();
  const session = useSession();
  const flow = useReactFlow();
  const catalogue = useSelected((state) => state.catalogue);
  const document = useSelected(documentOf);
  const inside = useSelected((state) => state.path.length > 0);
  const close = useMemo(
    () => () => {
      session.dispatch({ type: "palette", palette: null });
    },
    [session],
  );
  const apply = (edit: (document: GraphDocument) => GraphDocument) => {
    session.dispatch({ type: "edit", edit });
    close();
  };
  const place =
    request.place ??
    placeBeside(document, request.end) ??
    free(document, flow.screenToFlowPosition(middle()));
  const kinds = (words: string): Item[] =>
    findKinds(catalogue, document, words, request.end)
      // One subgraph inside another might hold it.
      .filter((kind) => !inside || kind.virtual !== "subgraph")
      .map((kind) => ({
        key: kind.type,
        label: kind.title,
        aside: <span className="quiet">{kind.category}</span>,
        choose: () => {
          apply((now) => addJoined(catalogue, now, kind, place, request.end));
        },
      }));
  const { end } = request;
  const find = (words: string): Item[] => {
    if (end?.side !== "input") return kinds(words);
    const { node, input } = end;
    const link = linkInto(document, node, input);
    const here: Item[] = findSources(catalogue, document, node, input)
      .filter((source) => source.label.toLowerCase().includes(words.toLowerCase()))
      .map((source) => ({
        key: `source:${source.from}:${source.output}`,
        label: source.label,
        aside: <span className="quiet">{say("graph.search.sources")}</span>,
        choose: () => {
          apply((now) =>
            connect(catalogue, now, { from: source.from, output: source.output, to: node, input }),
          );
        },
      }));
    const cut: Item = {
      key: "disconnect",
      label: say("graph.search.disconnect"),
      choose: () => {
        apply((now) => disconnect(now, link ? [link.id] : []));
      },
    };
    return [...(link && words === "" ? [cut] : []), ...here, ...kinds(words)];
  };
  return (
    <Floating at={request.near} label={say("graph.add")} close={close}>
      {end && <p className="quiet">{say("graph.search.joined")}</p>}
      <SearchList
        label={say("graph.search")}
        listLabel={say("graph.search.results")}
        none={say("graph.search.none")}
        find={find}
        close={close}
      />
    </Floating>
  );
}

/** The middle of the canvas on the screen. */
function middle(): Point {
  const { left, top, width, height } =
    window.document.querySelector(".graph-canvas")?.getBoundingClientRect() ?? new DOMRect();
  return { x: left + width / 2, y: top + height / 2 };
}

/** A place that no node has yet: the next one down to the right. */
function free(document: GraphDocument, place: Point): Point {
  const taken = [...document.nodes.values()].some(
    ({ position }) => Math.hypot(position.x - place.x, position.y - place.y) < GAP / 2,
  );
  return taken ? free(document, { x: place.x + GAP, y: place.y + GAP }) : place;
}

/** Left of what it shall feed, right of what feeds it. */
function placeBeside(document: GraphDocument, end: End | null): Point | null {
  const node = end && document.nodes.get(end.node);
  if (!node) return null;
  const { x, y } = node.position;
  return { x: x + (NODE_WIDTH + GAP) * (end.side === "input" ? -1 : 1), y };
}
