/**
 * A picture of the studio as a graph in the format that runs: the usual nodes, with what was asked for in their
 * fields. Knows nothing of the studio or the screen.
 */
import type { JobPicture, LoraUse, PicturesJob } from "../../api/jobs";
import type { JsonObject } from "./json";

type Ends = readonly [string, number];

const LOADER = "4";
const FIRST_LORA = 10;
const OWN_VAE = "20";
const PRESET = "21";

export function graphOfRequest({ model, preset, request }: PicturesJob, picture: JobPicture): JsonObject {
  const loras = (request.loras ?? []).map((lora, index): [string, LoraUse] => [
    String(FIRST_LORA + index),
    lora,
  ]);
  const last = loras.at(-1)?.[0] ?? LOADER;
  const vae: Ends = request.vae ? [OWN_VAE, 0] : [LOADER, 2];
  return {
    [LOADER]: node("CheckpointLoaderSimple", { ckpt_name: model }),
    ...Object.fromEntries(loras.map(([id, lora], index) => [id, merged(lora, loras[index - 1]?.[0])])),
    ...(preset ? { [PRESET]: node("CalotypePreset", { model: [last, 0], preset }) } : {}),
    ...(request.vae ? { [OWN_VAE]: node("VAELoader", { vae_name: request.vae }) } : {}),
    "5": node("EmptyLatentImage", { width: picture.width, height: picture.height, batch_size: 1 }),
    "6": node("CLIPTextEncode", { text: request.prompt ?? "", clip: [last, 1] }, "Prompt"),
    "7": node("CLIPTextEncode", { text: request.negative_prompt ?? "", clip: [last, 1] }, "Negative prompt"),
    "3": node("KSampler", {
      model: [preset ? PRESET : last, 0],
      positive: ["6", 0],
      negative: ["7", 0],
      latent_image: ["5", 0],
      seed: picture.seed,
      steps: request.steps,
      cfg: request.cfg,
      sampler_name: request.sampler,
      scheduler: request.schedule,
      denoise: 1,
    }),
    "8": node("VAEDecode", { samples: ["3", 0], vae }),
    "9": node("SaveImage", { images: ["8", 0], filename_prefix: "studio" }),
  };
}

function merged(lora: LoraUse, before = LOADER): JsonObject {
  return node("LoraLoader", {
    model: [before, 0],
    clip: [before, 1],
    lora_name: lora.name,
    strength_model: lora.strength,
    strength_clip: lora.text_strength ?? lora.strength,
  });
}

function node(class_type: string, inputs: JsonObject, title?: string): JsonObject {
  return { class_type, inputs, ...(title === undefined ? {} : { _meta: { title } }) };
}
