// Values straight into pixels: one array write per cell, however many there are.
import { RAMP_START, rampColors, type Rgb } from "./color";

const STEPS = 255;

const pack = ([red, green, blue]: Rgb): number => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const packedRamp = (color: string, start: number): Uint32Array =>
  Uint32Array.from(rampColors(color, STEPS, start), pack);

/**
 * An image of `columns` × `rows` cells; `values` are 0..1, NaN stays transparent. It is drawn scaled, so that panning and
 * zooming cost nothing more; `color` is a colour of the style sheet in the theme of this moment.
 * With `thick` every cell also fills its empty neighbours: for few links among many ranks.
 */
export function cellImage(
  values: Float32Array,
  columns: number,
  rows: number,
  color: string,
  { start = RAMP_START, thick = false }: { start?: number; thick?: boolean } = {},
): HTMLCanvasElement {
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  const pixels = new Uint32Array(image.data.buffer);
  const colors = packedRamp(color, start);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value === value) pixels[i] = colors[(Math.min(1, Math.max(0, value)) * STEPS + 0.5) | 0];
  }
  if (thick) thicken(pixels, columns, rows);
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

function thicken(pixels: Uint32Array, columns: number, rows: number): void {
  const before = pixels.slice();
  for (let at = 0; at < before.length; at++) {
    if (before[at] === 0) continue;
    const [row, column] = [Math.floor(at / columns), at % columns];
    for (let r = Math.max(0, row - 1); r <= Math.min(rows - 1, row + 1); r++) {
      for (let c = Math.max(0, column - 1); c <= Math.min(columns - 1, column + 1); c++) {
        if (before[r * columns + c] === 0) pixels[r * columns + c] = before[at];
      }
    }
  }
}
