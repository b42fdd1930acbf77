/**
 * The graph's room at work: holds the state, talks with the server, keeps what a reload must not lose. Lives as long
 * as the page, so that looking at another room stops nothing. Knows nothing of React's tree.
 */
import { askJob } from "../api/jobs";
import { nextReturn, returns } from "../connection/connection";
import { store, type Store } from "../connection/store";
import { clientName, keepGraph, keepRun, keptGraph, keptRun, newId } from "./memory";
import { writeApi } from "./model/api-format";
import { withUpload } from "./model/catalogue";
import { type GraphDocument } from "./model/document";
import { afterRun, setValue } from "./model/edits";
import { writeEditor } from "./model/editor-writing";
import { firstGraph } from "./model/first-graph";
import { isPicture, nameOfFile, NoGraphError, openCarried, openJson, openText } from "./model/opening";
import { graphOfRequest } from "./model/request-graph";
import * as asking from "./run/asking";
import { handIn, isOnTheWay, takeBack } from "./run/handing-in";
import * as runs from "./run/run-state";
import { listen } from "./run/socket";
import { FIRST_STATE, reduce, sizesOfWhole, wholeOf, type Action, type State } from "./state";

export interface Session {
  readonly state: Store<State>;
  readonly dispatch: (action: Action) => void;
  readonly run: (times: number) => Promise<void>;
  readonly cancel: (all: boolean) => Promise<void>;
  readonly open: (file: File) => Promise<void>;
  /** The graph of a picture that was made here, in the studio or by a graph. */
  readonly openMade: (job: string, index: number) => Promise<void>;
  readonly openFirst: () => Promise<void>;
  /** Once the server's nodes are known and the last graph is back. */
  readonly ready: Promise<void>;
  readonly upload: (node: string, input: string, file: File) => Promise<void>;
}

const KEEP_AFTER_MS = 300;
const STARTING_PROMPT = "a red apple";

export function createSession(): Session {
  const state = store(FIRST_STATE);
  const dispatch = (action: Action) => {
    state.set(reduce(state.get(), action));
  };
  const client = clientName();
  const session: Session = {
    state,
    dispatch,
    ready: new Promise((resolve) => {
      const stop = state.subscribe(() => {
        if (state.get().shownAnew === 0) return;
        stop();
        resolve();
      });
    }),
    run: async (times) => {
      for (let count = 0; count < times; count += 1) if (!(await runOnce(session, client))) return;
    },
    cancel: (all) => cancel(session, all),
    open: async (file) => {
      const bytes = new Uint8Array(await file.arrayBuffer());
      const { kinds } = state.get();
      const found = isPicture(bytes)
        ? openCarried(kinds, await asking.askCarried(file))
        : openText(kinds, new TextDecoder().decode(bytes));
      dispatch({ type: "opened", document: { ...found, name: nameOfFile(file.name) } });
    },
    openMade: async (id, index) => {
      const job = await askJob(id);
      const picture = job.pictures[index];
      if (!picture) throw new NoGraphError("picture");
      const { kinds } = state.get();
      const found =
        job.kind === "workflow"
          ? openCarried(kinds, await asking.askCarried(await asking.askPictureOfJob(id, index)))
          : openJson(kinds, graphOfRequest(job, picture));
      dispatch({ type: "opened", document: found });
    },
    openFirst: async () => {
      dispatch({ type: "opened", document: await startingGraph(state.get()) });
    },
    upload: async (node, input, file) => {
      const name = await asking.askToKeep(file);
      dispatch({ type: "catalogue", catalogue: withUpload(state.get().kinds, name) });
      dispatch({ type: "edit", edit: (document) => setValue(document, node, input, name) });
    },
  };
  return session;
}

async function startingGraph({ kinds }: State): Promise<GraphDocument> {
  return firstGraph(kinds, STARTING_PROMPT, await asking.askSide().catch(() => asking.USUAL_SIDE));
}

/** Begins everything that goes on by itself. Called once in the life of a page. */
export function startSession(session: Session): void {
  const { state, dispatch } = session;
  void readCatalogue(session).then(async () => {
    dispatch({ type: "run", change: () => keptRun() });
    const document = keptGraph(state.get().kinds) ?? (await startingGraph(state.get()));
    dispatch({ type: "restored", document });
    keepFromNowOn(session);
    hear(session);
  });
}

/** Asks until the server answers: without knowing its nodes there is nothing to draw. */
async function readCatalogue({ dispatch }: Session): Promise<void> {
  for (;;) {
    try {
      dispatch({ type: "catalogue", catalogue: await asking.askCatalogue() });
      return;
    } catch {
      await nextReturn();
    }
  }
}

function hear(session: Session): void {
  const { state, dispatch } = session;
  let lastPreview: string | null = null;
  listen(clientName(), {
    opened: () => void findAgain(session),
    message: (message) => {
      dispatch({ type: "message", message });
      // Runs taken back elsewhere before they began end without a word.
      if (message.type === "status" && message.queued < state.get().run.unfinished.length)
        void findAgain(session);
    },
    preview: (picture) => {
      const address = URL.createObjectURL(picture);
      dispatch({ type: "run", change: (run) => runs.previewed(run, address) });
      if (lastPreview !== null) URL.revokeObjectURL(lastPreview);
      lastPreview = address;
    },
  });
  returns.subscribe(() => {
    void readCatalogue(session);
    if (state.get().run.unfinished.length > 0) void findAgain(session);
  });
}

async function findAgain({ state, dispatch }: Session): Promise<void> {
  try {
    const ids = state.get().run.unfinished.filter((id) => !isOnTheWay(id));
    for (const found of await asking.askAbout(ids)) {
      dispatch({ type: "run", change: (run) => runs.foundAgain(run, found) });
    }
  } catch {
    // The connection has been told; the next time it opens this is asked again.
  }
}

function keepFromNowOn({ state }: Session): void {
  let [document, run] = [wholeOf(state.get()), state.get().run];
  let timer: ReturnType<typeof setTimeout> | null = null;
  const keep = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    keepGraph(state.get());
    keepRun(state.get().run);
  };
  state.subscribe(() => {
    const now = state.get();
    if (now.run.unfinished !== run.unfinished) keepRun(now.run);
    if (wholeOf(now) !== document || now.run !== run) timer ??= setTimeout(keep, KEEP_AFTER_MS);
    [document, run] = [wholeOf(now), now.run];
  });
  window.addEventListener("pagehide", keep);
}

/** False if the server would not have it, or it was taken back before. */
async function runOnce(session: Session, client: string): Promise<boolean> {
  const { state, dispatch } = session;
  const { catalogue } = state.get();
  const document = wholeOf(state.get());
  const id = newId();
  dispatch({ type: "run", change: (run) => runs.asked(run, id) });
  const prompt = writeApi(catalogue, document);
  const workflow = writeEditor(catalogue, document, sizesOfWhole(state.get()));
  const before = returns.get();
  const asked = await handIn(id, () => asking.askForRun(id, client, prompt, workflow));
  if (asked === null) return false;
  const { accepted, problems } = asked;
  if (!accepted) {
    dispatch({ type: "run", change: (run) => runs.refused(run, id, problems) });
    return false;
  }
  if (problems.length > 0) dispatch({ type: "run", change: (run) => runs.acceptedInPart(run, id, problems) });
  dispatch({ type: "amended", document: afterRun(catalogue, wholeOf(state.get()), Math.random) });
  // The server may have had it all along, and have told of it while nobody heard.
  if (returns.get() !== before) await findAgain(session);
  return true;
}

async function cancel(session: Session, all: boolean): Promise<void> {
  const { state, dispatch } = session;
  // What began a moment ago is stopped, not taken out of a queue it has left.
  if (state.get().run.current === null) await findAgain(session);
  const { current, unfinished } = state.get().run;
  const waiting = unfinished.filter((id) => id !== current);
  const forgotten = all || current === null ? waiting : [];
  const known = forgotten.filter((id) => !isOnTheWay(id));
  forgotten.filter(isOnTheWay).forEach(takeBack);
  if (known.length > 0) await asking.askToForget(known);
  for (const id of forgotten) dispatch({ type: "run", change: (run) => runs.ended(run, id, "cancelled") });
  if (current !== null) await asking.askToStop(current);
}
