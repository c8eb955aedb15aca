// The visible square of a matrix, in cells: zooming and moving without leaving the matrix.
import { clamp } from "./scale";

export interface Viewport {
  column: number;
  row: number;
  span: number;
}

export const whole = (count: number): Viewport => ({ column: 0, row: 0, span: Math.max(1, count) });

/** Zoom by `factor` (below 1 = closer) so that the cell under the pointer stays under it. */
export function zoom(view: Viewport, count: number, factor: number, at: { column: number; row: number }): Viewport {
  const span = clamp(view.span * factor, Math.min(count, 6), Math.max(1, count));
  const kept = span / view.span;
  return inside(
    { span, column: at.column - (at.column - view.column) * kept, row: at.row - (at.row - view.row) * kept },
    count,
  );
}

export function move(view: Viewport, count: number, columns: number, rows: number): Viewport {
  return inside({ ...view, column: view.column + columns, row: view.row + rows }, count);
}

/** A window of `span` cells around one cell. */
export function around(cell: { column: number; row: number }, count: number, span: number): Viewport {
  const size = Math.min(span, count);
  return inside({ span: size, column: cell.column + 0.5 - size / 2, row: cell.row + 0.5 - size / 2 }, count);
}

function inside(view: Viewport, count: number): Viewport {
  const last = Math.max(0, count - view.span);
  return { span: view.span, column: clamp(view.column, 0, last), row: clamp(view.row, 0, last) };
}

export const contains = (view: Viewport, cell: { column: number; row: number }): boolean =>
  cell.row >= view.row &&
  cell.row < view.row + view.span &&
  cell.column >= view.column &&
  cell.column < view.column + view.span;
