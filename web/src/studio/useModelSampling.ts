/** What the chosen model runs with where the form is set to automatic. */

import { useEffect } from "react";

import { inspectModel, readModels, type SamplingValues } from "../api/system";
import { returns } from "../connection/connection";
import { store, useStore } from "../connection/store";
import { samplingOf, useOffers } from "../parts/offers";
import { settings } from "./settings";

/** By model name, for models that were not loaded when the page was opened. */
const inspected = store<ReadonlyMap<string, SamplingValues>>(new Map());

/** Null until the server has answered, and where it cannot say. */
export function useModelSampling(): SamplingValues | null {
  const { model } = useStore(settings);
  const { system, sampling, files } = useOffers();
  const back = useStore(returns);
  const seen = useStore(inspected);
  const name = model === "" ? (system?.defaults.model ?? "") : model;
  const found = sampling(name) ?? seen.get(name) ?? null;
  const missing = found === null && files("checkpoints").includes(name);
  useEffect(() => {
    if (!missing) return;
    find(name).catch(() => {
      // The form works without: the server knows the values when the job is run.
    });
  }, [missing, name, back]);
  return found;
}

/** From the model if it has been loaded since, otherwise from its file, which takes the server seconds. */
async function find(name: string): Promise<void> {
  const values =
    samplingOf(await readModels(), name) ?? (await inspectModel("checkpoints", name)).sampling ?? null;
  if (values !== null) inspected.set(new Map([...inspected.get(), [name, values]]));
}
