import { expect, test } from "vitest";

import type { PicturesJob, JobPicture } from "../../api/jobs";
import { graphOfRequest } from "./request-graph";

const PICTURE: JobPicture = { sha256: "", bytes: 1, width: 64, height: 64, seed: 7 };

test("a chosen preset is a node behind the LoRAs, and none is none", () => {
  const loras = [{ name: "ink", strength: 0.5, text_strength: null }];
  const job = { model: "emoji", preset: "int8", request: { loras } } as Partial<PicturesJob> as PicturesJob;
  expect(graphOfRequest(job, PICTURE)).toMatchObject({
    "21": { class_type: "CalotypePreset", inputs: { model: ["10", 0], preset: "int8" } },
    "3": { inputs: { model: ["21", 0] } },
    "6": { inputs: { clip: ["10", 1] } },
  });
  const plain = graphOfRequest({ ...job, preset: null }, PICTURE);
  expect(plain).toMatchObject({ "3": { inputs: { model: ["10", 0] } } });
  expect(plain).not.toHaveProperty("21");
});
