/** From what the form says to jobs of the server. */

import { submissions } from "./grid";
import { axes, gridPlan } from "./gridPlan";
import { sendGrid } from "./gridSending";
import { newKey, send } from "./outbox";
import { select, type Selection } from "./selection";
import { change, randomSeed, settings, submissionOf } from "./settings";
import { givenNow } from "./start";

export async function generate(): Promise<void> {
  if (!settings.get().locked) change({ seed: randomSeed() });
  const [asked, given, planned] = [settings.get(), givenNow(), gridPlan.get()];
  if (!planned.on) {
    const job = await send(submissionOf(asked, given !== null, `studio/${newKey()}`), given);
    show({ kind: "picture", job: job.id, index: 0 });
    return;
  }
  const { x, y } = axes(planned);
  const cells = submissions(asked, given !== null, x, y);
  const grid = cells[0]?.idempotency_key.split("/")[1] ?? "";
  await sendGrid(grid, cells, given, () => {
    show({ kind: "grid", grid });
  });
}

/** On a phone the stage is below the form. */
function show(selection: Selection): void {
  select(selection);
  if (window.matchMedia("(max-width: 720px)").matches) document.getElementById("stage")?.scrollIntoView();
}
