/** The default graph as other editors save it and as it is posted, written by hand from the formats' description. */
import type { Json, JsonObject } from "../model/json";

function filed(id: number, type: string, at: number[], values: Json[], more: JsonObject = {}): JsonObject {
  const blank = {
    flags: {},
    order: 0,
    mode: 0,
    inputs: [],
    outputs: [],
    properties: { "Node name for S&R": type },
  };
  return { id, type, pos: at, size: [315, 98], widgets_values: values, ...blank, ...more };
}

function into(name: string, type: string, link: number): JsonObject {
  return { name, type, link };
}

function out(type: string, ...links: number[]): JsonObject {
  return { name: type, type, links, slot_index: 0 };
}

export const EDITOR_FILE: JsonObject = {
  last_node_id: 9,
  last_link_id: 9,
  nodes: [
    filed(7, "CLIPTextEncode", [413, 389], ["text, watermark"], {
      inputs: [into("clip", "CLIP", 5)],
      outputs: [out("CONDITIONING", 6)],
    }),
    filed(6, "CLIPTextEncode", [415, 186], ["a glass bottle"], {
      inputs: [into("clip", "CLIP", 3)],
      outputs: [out("CONDITIONING", 4)],
      color: "#232",
    }),
    filed(5, "EmptyLatentImage", [473, 609], [512, 768, 2], { outputs: [out("LATENT", 2)] }),
    filed(3, "KSampler", [863, 186], [18446744073709551615n, "randomize", 20, 8.5, "euler", "normal", 1], {
      size: { "0": 315, "1": 262 },
      inputs: [
        into("model", "MODEL", 1),
        into("positive", "CONDITIONING", 4),
        into("negative", "CONDITIONING", 6),
        into("latent_image", "LATENT", 2),
      ],
      outputs: [out("LATENT", 7)],
    }),
    filed(8, "VAEDecode", [1209, 188], [], {
      inputs: [into("samples", "LATENT", 7), into("vae", "VAE", 8)],
      outputs: [out("IMAGE", 9)],
    }),
    filed(9, "SaveImage", [1451, 189], ["ComfyUI"], { inputs: [into("images", "IMAGE", 9)] }),
    filed(4, "CheckpointLoaderSimple", [26, 474], ["sd15.safetensors"], {
      title: "The model",
      outputs: [out("MODEL", 1), out("CLIP", 3, 5), out("VAE", 8)],
    }),
  ],
  links: [
    [1, 4, 0, 3, 0, "MODEL"],
    [2, 5, 0, 3, 3, "LATENT"],
    [3, 4, 1, 6, 0, "CLIP"],
    [4, 6, 0, 3, 1, "CONDITIONING"],
    [5, 4, 1, 7, 0, "CLIP"],
    [6, 7, 0, 3, 2, "CONDITIONING"],
    [7, 3, 0, 8, 0, "LATENT"],
    [8, 4, 2, 8, 1, "VAE"],
    [9, 8, 0, 9, 0, "IMAGE"],
  ],
  groups: [{ title: "Words", bounding: [400, 120, 450, 420], color: "#3f789e", font_size: 24 }],
  config: {},
  extra: { ds: { scale: 0.9, offset: [0, 0] } },
  version: 0.4,
};

function posted(class_type: string, inputs: JsonObject, title: string): JsonObject {
  return { class_type, inputs, _meta: { title } };
}

export const API_FILE: JsonObject = {
  "3": posted(
    "KSampler",
    {
      model: ["4", 0],
      seed: 18446744073709551615n,
      steps: 20,
      cfg: 8.5,
      sampler_name: "euler",
      scheduler: "normal",
      positive: ["6", 0],
      negative: ["7", 0],
      latent_image: ["5", 0],
      denoise: 1,
    },
    "KSampler",
  ),
  "4": posted("CheckpointLoaderSimple", { ckpt_name: "sd15.safetensors" }, "The model"),
  "5": posted("EmptyLatentImage", { width: 512, height: 768, batch_size: 2 }, "Empty Latent Image"),
  "6": posted("CLIPTextEncode", { text: "a glass bottle", clip: ["4", 1] }, "CLIP Text Encode (Prompt)"),
  "7": posted("CLIPTextEncode", { text: "text, watermark", clip: ["4", 1] }, "CLIP Text Encode (Prompt)"),
  "8": posted("VAEDecode", { samples: ["3", 0], vae: ["4", 2] }, "VAE Decode"),
  "9": posted("SaveImage", { images: ["8", 0], filename_prefix: "ComfyUI" }, "Save Image"),
};
