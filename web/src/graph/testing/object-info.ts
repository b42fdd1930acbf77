/** A server's node kinds, as `/object_info` writes them; enough of them for tests. */
import { readCatalogue, type Catalogue } from "../model/catalogue";
import type { Json } from "../model/json";

const SAMPLERS = ["euler", "euler_ancestral", "heun", "dpmpp_2m"];

function described(
  display_name: string,
  category: string,
  required: Json,
  output: string[],
  more: Record<string, Json> = {},
): Json {
  return {
    display_name,
    category,
    input: { required },
    output,
    output_name: output,
    output_node: false,
    ...more,
  };
}

export const OBJECT_INFO: Json = {
  CheckpointLoaderSimple: described(
    "Load Checkpoint",
    "loaders",
    { ckpt_name: [["emoji", "sd15.safetensors"], {}] },
    ["MODEL", "CLIP", "VAE"],
  ),
  CLIPTextEncode: described(
    "CLIP Text Encode (Prompt)",
    "conditioning",
    { text: ["STRING", { multiline: true }], clip: ["CLIP"] },
    ["CONDITIONING"],
  ),
  EmptyLatentImage: described(
    "Empty Latent Image",
    "latent",
    {
      width: ["INT", { default: 512, min: 16, max: 16384, step: 8 }],
      height: ["INT", { default: 512, min: 16, max: 16384, step: 8 }],
      batch_size: ["INT", { default: 1, min: 1, max: 4096 }],
    },
    ["LATENT"],
  ),
  KSampler: described(
    "KSampler",
    "sampling",
    {
      model: ["MODEL"],
      seed: ["INT", { default: 0, min: 0, max: 18446744073709551615n, control_after_generate: true }],
      steps: ["INT", { default: 20, min: 1, max: 10000 }],
      cfg: ["FLOAT", { default: 8, min: 0, max: 100, step: 0.1 }],
      sampler_name: ["COMBO", { options: SAMPLERS }],
      scheduler: [["normal", "karras"], {}],
      positive: ["CONDITIONING"],
      negative: ["CONDITIONING"],
      latent_image: ["LATENT"],
      denoise: ["FLOAT", { default: 1, min: 0, max: 1, step: 0.01 }],
    },
    ["LATENT"],
  ),
  VAEDecode: described("VAE Decode", "latent", { samples: ["LATENT"], vae: ["VAE"] }, ["IMAGE"]),
  LoraLoader: described(
    "Load LoRA",
    "loaders",
    {
      model: ["MODEL"],
      clip: ["CLIP"],
      lora_name: [["ink.safetensors"], {}],
      strength_model: ["FLOAT", { default: 1, min: -100, max: 100, step: 0.01 }],
      strength_clip: ["FLOAT", { default: 1, min: -100, max: 100, step: 0.01 }],
    },
    ["MODEL", "CLIP"],
  ),
  LoadImage: described("Load Image", "image", { image: [["example.png"], { image_upload: true }] }, [
    "IMAGE",
    "MASK",
  ]),
  SaveImage: described(
    "Save Image",
    "image",
    { images: ["IMAGE"], filename_prefix: ["STRING", { default: "ComfyUI" }] },
    [],
    { output_node: true },
  ),
};

export const CATALOGUE: Catalogue = readCatalogue(OBJECT_INFO);
