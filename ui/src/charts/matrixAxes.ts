// The axes of a matrix: labels as dense as they stay readable, lines between hosts, culprits in red.
import { variable } from "./color";
import type { Viewport } from "./viewport";

export interface Axis {
  count: number;
  label: (place: number) => string;
  /** Places where a host begins. */
  boundaries: number[];
  /** Names instead of numbers: the upper labels are turned. */
  names: boolean;
}

/** A cell of a matrix: its place on the two axes. */
export interface Spot {
  row: number;
  column: number;
}

/** Where the plot of a matrix is and which part of the matrix it shows. */
export interface Frame {
  view: Viewport;
  /** Pixels a cell is wide. */
  cell: number;
  /** Where the plot begins, and its side. */
  top: number;
  size: number;
}

export const LEFT = 74;

/** Room above: turned names need more than numbers. */
export const topOf = (axis: Axis): number => (axis.names ? 80 : 34);
/** Room to the right, for the last turned name. */
export const rightOf = (axis: Axis): number => (axis.names ? 34 : 0);

interface AxesFrame {
  axis: Axis;
  view: Viewport;
  size: number;
  marked: Spot[];
  words: [sender: string, receiver: string];
}

export function drawAxes(context: CanvasRenderingContext2D, frame: AxesFrame): void {
  const { size, words } = frame;
  const top = topOf(frame.axis);
  context.font = `11px ${variable("font")}`;
  drawBoundaries(context, frame);
  const rows = new Set(frame.marked.map((cell) => cell.row));
  const columns = new Set(frame.marked.map((cell) => cell.column));
  for (const place of shownPlaces(frame, rows)) label(context, frame, place, "left", rows.has(place));
  for (const place of shownPlaces(frame, columns)) label(context, frame, place, "top", columns.has(place));
  context.font = `11px ${variable("font")}`;
  context.fillStyle = variable("ink-soft");
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.fillText(`${words[1]} →`, LEFT + size, 11);
  context.save();
  context.translate(11, top + size);
  context.rotate(-Math.PI / 2);
  context.textAlign = "left";
  context.fillText(`← ${words[0]}`, 0, 0);
  context.restore();
  context.strokeStyle = variable("rule");
  context.strokeRect(LEFT + 0.5, top + 0.5, size - 1, size - 1);
}

/** A square around a cell, large enough to be seen around cells of one pixel. */
export function drawRing(context: CanvasRenderingContext2D, at: Spot, { view, cell, top }: Frame, color: string): void {
  const side = Math.max(9, cell + 2);
  const x = LEFT + (at.column - view.column + 0.5) * cell;
  const y = top + (at.row - view.row + 0.5) * cell;
  context.strokeStyle = color;
  context.lineWidth = 2.5;
  context.strokeRect(x - side / 2, y - side / 2, side, side);
  context.lineWidth = 1;
}

function drawBoundaries(context: CanvasRenderingContext2D, { axis, view, size }: AxesFrame): void {
  const cell = size / view.span;
  const top = topOf(axis);
  if (axis.boundaries.length > 1 && (cell * axis.count) / axis.boundaries.length < 14) return;
  context.strokeStyle = variable("rule");
  context.beginPath();
  for (const place of axis.boundaries) {
    const x = Math.round(LEFT + (place - view.column) * cell) + 0.5;
    const y = Math.round(top + (place - view.row) * cell) + 0.5;
    if (x > LEFT && x < LEFT + size) line(context, x, top, x, top + size);
    if (y > top && y < top + size) line(context, LEFT, y, LEFT + size, y);
  }
  context.stroke();
}

/** Every 1st, 2nd, 4th, 8th … place, so that labels keep their distance; marked places always. */
function shownPlaces({ axis, view, size }: AxesFrame, marked: Set<number>): number[] {
  const cell = size / view.span;
  const room = axis.names ? 16 : 30;
  let every = 1;
  while (every * cell < room) every *= 2;
  const places: number[] = [];
  for (let place = 0; place < axis.count; place += every) {
    if (![...marked].some((other) => other !== place && Math.abs(other - place) * cell < room)) places.push(place);
  }
  return [...new Set([...places, ...marked])];
}

function label(
  context: CanvasRenderingContext2D,
  frame: AxesFrame,
  place: number,
  side: "left" | "top",
  red: boolean,
): void {
  const { axis, view, size } = frame;
  const top = topOf(axis);
  const start = side === "left" ? view.row : view.column;
  if (place < Math.floor(start) || place >= start + view.span) return;
  const at = (place - start + 0.5) * (size / view.span);
  if (at < 0 || at > size) return;
  context.fillStyle = variable(red ? "culprit" : "ink-soft");
  context.font = `${red ? "bold " : ""}11px ${variable("font")}`;
  context.textBaseline = "middle";
  const text = shorten(axis.label(place));
  if (side === "left") {
    context.textAlign = "right";
    context.fillText(text, LEFT - 6, top + at);
  } else if (axis.names) {
    context.save();
    context.translate(LEFT + at, top - 6);
    context.rotate(-Math.PI / 4);
    context.textAlign = "left";
    context.fillText(text, 0, 0);
    context.restore();
  } else {
    context.textAlign = "center";
    context.fillText(text, LEFT + at, top - 10);
  }
}

function line(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
}

/** The end of a host name tells hosts apart. */
const shorten = (text: string): string => (text.length > 9 ? `…${text.slice(-8)}` : text);
