/** The picture that is started from, and its mask. Pictures sent with a job are remembered while the page is open. */

import type { Given } from "../api/jobs";
import { store } from "../connection/store";

export interface Start {
  image: Blob;
  /** For showing it. */
  url: string;
  name: string;
  width: number;
  height: number;
  /** White is painted anew; of the picture's size. */
  mask: Blob | null;
  maskUrl: string | null;
}

export const start = store<Start | null>(null);

const sent = new Map<string, Given>();

export function rememberSent(jobId: string, given: Given): void {
  sent.set(jobId, given);
}

export function sentWith(jobId: string): Given | null {
  return sent.get(jobId) ?? null;
}

export async function startFrom(image: Blob, name: string, mask: Blob | null = null): Promise<void> {
  const bitmap = await createImageBitmap(image);
  const { width, height } = bitmap;
  bitmap.close();
  letGo(start.get());
  start.set({
    image,
    url: URL.createObjectURL(image),
    name,
    width,
    height,
    mask,
    maskUrl: mask && URL.createObjectURL(mask),
  });
}

export function setMask(mask: Blob | null): void {
  const current = start.get();
  if (!current) return;
  if (current.maskUrl) URL.revokeObjectURL(current.maskUrl);
  start.set({ ...current, mask, maskUrl: mask && URL.createObjectURL(mask) });
}

export function clearStart(): void {
  letGo(start.get());
  start.set(null);
}

export function givenNow(): Given | null {
  const current = start.get();
  return current && { image: current.image, mask: current.mask };
}

function letGo(old: Start | null): void {
  if (!old) return;
  URL.revokeObjectURL(old.url);
  if (old.maskUrl) URL.revokeObjectURL(old.maskUrl);
}
