/** A grid with its labels as one picture file. */

import { pictureAddress, type Job } from "../api/jobs";
import { standing, type Grid } from "./grid";
import { canvasOf, contextOf, pngOf } from "./mask";

const GAP = 6;
const EDGE = 110;
const HEAD = 34;
const FONT = "14px system-ui, sans-serif";

export async function saveGrid(grid: Grid, names: { x: string; y: string }): Promise<void> {
  const pictures = await Promise.all(grid.cells.map((row) => Promise.all(row.map(pictureOf))));
  const all = pictures.flat().filter((picture) => picture !== null);
  const [width, height] = [
    Math.max(1, ...all.map((one) => one.naturalWidth)),
    Math.max(1, ...all.map((one) => one.naturalHeight)),
  ];
  const canvas = canvasOf(EDGE + grid.columns * (width + GAP), HEAD + grid.rows * (height + GAP));
  const context = contextOf(canvas);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "#111";
  context.font = FONT;
  grid.cells.forEach((row, y) => {
    const top = HEAD + y * (height + GAP);
    row.forEach((job, x) => {
      const left = EDGE + x * (width + GAP);
      const picture = pictures[y]?.[x];
      if (picture) context.drawImage(picture, left, top);
      if (y === 0 && job) context.fillText(`${names.x} ${standing(job, grid.x)}`, left, HEAD - 12, width);
      if (x === 0 && job) context.fillText(`${names.y} ${standing(job, grid.y)}`, 8, top + 20, EDGE - 12);
    });
  });
  download(await pngOf(canvas), `grid-${grid.id}.png`);
}

async function pictureOf(job: Job | null): Promise<HTMLImageElement | null> {
  return job?.pictures.length ? loaded(pictureAddress(job.id, 0)) : null;
}

function loaded(address: string): Promise<HTMLImageElement> {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => {
      resolve(image);
    };
    image.onerror = () => {
      reject(new Error(`${address} could not be loaded`));
    };
    image.src = address;
  });
}

export function download(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
