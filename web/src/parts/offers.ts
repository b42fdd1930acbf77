/** What the server offers to choose from. Shared by whoever has a form; asked for again when it comes back. */

import { useEffect } from "react";

import { readModels, readSystem, type ModelFiles, type SamplingValues, type System } from "../api/system";
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
  /** What a model runs with where a request does not say; null if the server has not loaded it. */
  sampling: (model: string) => SamplingValues | null;
}

export function useOffers(): Offers {
  const back = useStore(returns);
  const state = useStore(connection);
  const found = useStore(models);
  useEffect(ask, [back, state]);
  const files = (folder: string) =>
    found?.models.filter((model) => model.folder === folder).map((model) => model.name) ?? [];
  const sampling = (name: string) => samplingOf(found, name);
  return { system: useStore(system), files, sampling };
}

export function samplingOf(found: ModelFiles | null, name: string): SamplingValues | null {
  const model = found?.models.find((file) => file.folder === "checkpoints" && file.name === name);
  return model?.sampling ?? null;
}
