/** What the server offers to choose from. Shared by whoever has a form; asked for again when it comes back. */

import { useEffect } from "react";

import { readModels, readSystem, type ModelFiles, type System } from "../api/system";
import { connection, returns } from "../connection/connection";
import { store, useStore } from "../connection/store";

const system = store<System | null>(null);
const models = store<ModelFiles | null>(null);
let asked = -1;

function ask(): void {
  if (connection.get() !== "answers" || asked === returns.get()) return;
  asked = returns.get();
  const ignored = () => {
    // Without it the form still works: the server knows its own defaults.
  };
  readSystem()
    .then((found) => {
      system.set(found);
    })
    .catch(ignored);
  readModels()
    .then((found) => {
      models.set(found);
    })
    .catch(ignored);
}

export interface Offers {
  system: System | null;
  /** Names of model files of a folder: checkpoints, loras, vae. */
  files: (folder: string) => string[];
}

export function useOffers(): Offers {
  const back = useStore(returns);
  const state = useStore(connection);
  const found = useStore(models);
  useEffect(ask, [back, state]);
  const files = (folder: string) =>
    found?.models.filter((model) => model.folder === folder).map((model) => model.name) ?? [];
  return { system: useStore(system), files };
}
