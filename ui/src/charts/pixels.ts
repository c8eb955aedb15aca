// Values straight into pixels: one array write per cell, however many there are.
import { cividis, type Rgb } from "./color";

const STEPS = 255;
/** On dark paper the darkest blue would vanish: the ramp starts a little higher. */
const START = { light: 0, dark: 0.22 };

const pack = ([red, green, blue]: Rgb): number => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const RAMPS = { light: ramp("light"), dark: ramp("dark") };

function ramp(theme: "light" | "dark"): Uint32Array {
  const start = START[theme];
  return Uint32Array.from({ length: STEPS + 1 }, (_, i) => pack(cividis(start + ((1 - start) * i) / STEPS)));
}

/**
 * An image of `columns` × `rows` cells; `values` are 0..1, NaN stays transparent. It is drawn scaled, so that panning and
 * zooming cost nothing more.
 */
export function cellImage(values: Float32Array, columns: number, rows: number, theme: "light" | "dark"): HTMLCanvasElement {
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  const pixels = new Uint32Array(image.data.buffer);
  const colors = RAMPS[theme];
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value === value) pixels[i] = colors[(Math.min(1, Math.max(0, value)) * STEPS + 0.5) | 0];
  }
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}
