/**
 * A mask as the list of what was done to it, so that undoing is leaving out the last. Knows nothing of pointers.
 *
 * On the canvas, what is to be painted anew is opaque and the rest is clear; the file is white on black.
 */

export interface Point {
  x: number;
  y: number;
}

export type Deed =
  | { kind: "stroke"; points: Point[]; radius: number; erase: boolean }
  | { kind: "clear" }
  | { kind: "invert" }
  | { kind: "picture"; picture: ImageBitmap };

const OPAQUE = "#fff";
const HALF = 127;

export function draw(canvas: HTMLCanvasElement, deeds: readonly Deed[], colour: string): void {
  const context = contextOf(canvas);
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (const deed of deeds) perform(context, deed, colour);
}

/** One more deed on what is there. */
export function perform(context: CanvasRenderingContext2D, deed: Deed, colour: string): void {
  const { width, height } = context.canvas;
  context.save();
  context.fillStyle = colour;
  context.strokeStyle = colour;
  if (deed.kind === "clear") context.clearRect(0, 0, width, height);
  else if (deed.kind === "invert") {
    context.globalCompositeOperation = "xor";
    context.fillRect(0, 0, width, height);
  } else if (deed.kind === "picture") {
    context.clearRect(0, 0, width, height);
    context.drawImage(whiteOnly(deed.picture, width, height), 0, 0);
    tint(context, colour);
  } else stroke(context, deed.points, deed.radius, deed.erase);
  context.restore();
}

function stroke(
  context: CanvasRenderingContext2D,
  points: readonly Point[],
  radius: number,
  erase: boolean,
): void {
  const [first, ...rest] = points;
  if (!first) return;
  context.globalCompositeOperation = erase ? "destination-out" : "source-over";
  context.lineWidth = radius * 2;
  context.lineCap = "round";
  context.lineJoin = "round";
  context.beginPath();
  if (rest.every(({ x, y }) => x === first.x && y === first.y)) {
    // A line without a length is not drawn.
    context.arc(first.x, first.y, radius, 0, 2 * Math.PI);
    context.fill();
    return;
  }
  context.moveTo(first.x, first.y);
  for (const point of rest) context.lineTo(point.x, point.y);
  context.stroke();
}

function tint(context: CanvasRenderingContext2D, colour: string): void {
  context.globalCompositeOperation = "source-in";
  context.fillStyle = colour;
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
}

/** A mask file as what is opaque where it is white. */
function whiteOnly(picture: ImageBitmap, width: number, height: number): HTMLCanvasElement {
  const made = canvasOf(width, height);
  const context = contextOf(made);
  context.drawImage(picture, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height);
  for (let at = 0; at < pixels.data.length; at += 4) {
    pixels.data[at + 3] = (pixels.data[at] ?? 0) > HALF ? 255 : 0;
  }
  context.putImageData(pixels, 0, 0);
  return made;
}

/** Whether nothing is to be painted anew. */
export function isBlank(painted: HTMLCanvasElement): boolean {
  const { data } = contextOf(painted).getImageData(0, 0, painted.width, painted.height);
  for (let at = 3; at < data.length; at += 4) if (data[at]) return false;
  return true;
}

/** White on black, as the server reads it. */
export async function fileOf(painted: HTMLCanvasElement): Promise<Blob> {
  const white = canvasOf(painted.width, painted.height);
  const inWhite = contextOf(white);
  inWhite.drawImage(painted, 0, 0);
  tint(inWhite, OPAQUE);
  const made = canvasOf(painted.width, painted.height);
  const context = contextOf(made);
  context.fillStyle = "#000";
  context.fillRect(0, 0, made.width, made.height);
  context.drawImage(white, 0, 0);
  return pngOf(made);
}

export function pngOf(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => {
      if (blob) resolve(blob);
      else reject(new Error("the browser could not make a PNG"));
    }, "image/png");
  });
}

export function canvasOf(width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

export function contextOf(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("the browser has no canvas to draw on");
  return context;
}
