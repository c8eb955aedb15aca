// The cells of a matrix: few as rectangles, very many straight into pixels.
import { css, MATRIX_START, parseHex, rampColors, variable, type Rgb } from "./color";
import { LEFT, type Frame } from "./matrixAxes";
import type { MatrixCell } from "./matrixGrid";

const STEPS = 64;
/** From here on single rectangles are slower than writing pixels. */
const MANY = 20_000;

export function drawCells(context: CanvasRenderingContext2D, cells: MatrixCell[], frame: Frame, color: string): void {
  const colors = [...rampColors(color, STEPS, MATRIX_START), parseHex(variable("free"))];
  if (cells.length > MANY && frame.cell < 4) drawPixels(context, cells, frame, colors);
  else drawRectangles(context, cells, frame, colors.map(css));
}

const level = (cell: MatrixCell): number =>
  Number.isNaN(cell.fraction) ? STEPS + 1 : Math.round(cell.fraction * STEPS);

function drawRectangles(
  context: CanvasRenderingContext2D,
  cells: MatrixCell[],
  { view, cell, top }: Frame,
  colors: string[],
): void {
  const full = Math.max(2, cell > 8 ? cell - 1 : cell);
  for (const one of cells) {
    const side = one.small ? Math.max(1, full * 0.4) : full;
    const x = LEFT + (one.column - view.column) * cell + (full - side) / 2;
    const y = top + (one.row - view.row) * cell + (full - side) / 2;
    context.fillStyle = colors[level(one)];
    context.fillRect(x, y, side, side);
  }
}

function drawPixels(context: CanvasRenderingContext2D, cells: MatrixCell[], frame: Frame, colors: Rgb[]): void {
  const ratio = context.getTransform().a;
  const [left, top, size] = [LEFT, frame.top, frame.size].map((length) => Math.round(length * ratio));
  const image = context.getImageData(left, top, size, size);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = colors.map(([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  const cell = frame.cell * ratio;
  const side = Math.max(1, Math.ceil(cell));
  for (const one of cells) {
    const x = Math.floor((one.column - frame.view.column) * cell);
    const y = Math.floor((one.row - frame.view.row) * cell);
    if (x < 0 || y < 0 || x + side > size || y + side > size) continue;
    const color = packed[level(one)];
    for (let row = y; row < y + side; row++) pixels.fill(color, row * size + x, row * size + x + side);
  }
  context.putImageData(image, left, top);
}
