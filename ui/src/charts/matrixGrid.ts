// What a matrix of links holds: a few thousand cells as objects (sparse), or a value for every pair of ranks (dense).
import { LEFT, type Frame, type Spot } from "./matrixAxes";
import { drawCells } from "./matrixCells";
import { MATRIX_START } from "./color";
import { cellImage } from "./pixels";
import { timed } from "./useCanvas";

export type Colors = "light" | "dark";

/** Links are communication. */
export const MATRIX_COLOR = "exposed";

/** The side of Matrix that differs by how its cells are stored. */
export interface MatrixGrid {
  paint: (context: CanvasRenderingContext2D, frame: Frame, theme: Colors) => void;
  /** The cell under a point, or the closest within `reach` cells when cells are smaller than pixels. */
  nearest: (at: Spot, reach: number) => Spot | null;
  /** The next cell in a direction: `rows` and `columns` are -1, 0 or 1, one of them 0. */
  next: (from: Spot | null, rows: number, columns: number) => Spot | null;
  marked: Spot[];
}

export interface MatrixCell extends Spot {
  /** 0..1 on the colour scale, NaN when unknown */
  fraction: number;
  marked: boolean;
  /** Carries so little that its bandwidth means nothing: drawn small. */
  small: boolean;
}

export interface SparseGrid<Cell extends MatrixCell> extends MatrixGrid {
  cellAt: (spot: Spot) => Cell | undefined;
}

export function sparseGrid<Cell extends MatrixCell>(cells: Cell[], count: number): SparseGrid<Cell> {
  const index = new Map(cells.map((cell) => [cell.row * count + cell.column, cell]));
  const cellAt = ({ row, column }: Spot): Cell | undefined => index.get(row * count + column);
  return {
    cellAt,
    paint: (context, frame) => drawCells(context, cells, frame, MATRIX_COLOR),
    nearest: (at, reach) => nearestSpot(at, reach, count, (spot) => cellAt(spot) !== undefined),
    next: (from, rows, columns) => nextCell(cells, from ?? { row: -1, column: -1 }, rows, columns),
    marked: cells.filter((cell) => cell.marked),
  };
}

/** Few links among this many ranks would be lines of single pixels: they are drawn thicker. */
const FEW = 0.03;
const THIN = 256;

/** `values`: count × count, row after row, 0..1 on the colour scale, NaN where there is no link. */
export function denseGrid(values: Float32Array, count: number, marked: Spot[]): MatrixGrid {
  const few = values.reduce((known, value) => known + (value === value ? 1 : 0), 0) < FEW * values.length;
  const images = new Map<string, HTMLCanvasElement>();
  const imageOf = (theme: Colors, thick: boolean): HTMLCanvasElement => {
    const key = `${theme} ${thick}`;
    const image =
      images.get(key) ??
      timed("cells", () => cellImage(values, count, count, MATRIX_COLOR, { start: MATRIX_START, thick }));
    images.set(key, image);
    return image;
  };
  const has = ({ row, column }: Spot): boolean => values[row * count + column] === values[row * count + column];
  return {
    paint: (context, { view, size, top }, theme) => {
      // Cells smaller than a pixel are averaged, so that every link leaves a trace; larger ones stay sharp.
      context.imageSmoothingEnabled = view.span > size;
      context.imageSmoothingQuality = "high";
      const image = imageOf(theme, few && view.span > THIN);
      context.drawImage(image, view.column, view.row, view.span, view.span, LEFT, top, size, size);
    },
    nearest: (at, reach) => nearestSpot(at, reach, count, has),
    next: (from, rows, columns) => nextValue(values, count, from ?? { row: 0, column: 0 }, rows * count + columns),
    marked,
  };
}

/** Searches rings of growing distance around the cell under the pointer. */
function nearestSpot(at: Spot, reach: number, count: number, has: (spot: Spot) => boolean): Spot | null {
  const [row, column] = [Math.floor(at.row), Math.floor(at.column)];
  for (let away = 0; away <= reach; away++) {
    for (let r = row - away; r <= row + away; r++) {
      for (let c = column - away; c <= column + away; c++) {
        const onRing = Math.max(Math.abs(r - row), Math.abs(c - column)) === away;
        const inside = r >= 0 && c >= 0 && r < count && c < count;
        if (onRing && inside && has({ row: r, column: c })) return { row: r, column: c };
      }
    }
  }
  return null;
}

/** Along the row in reading order, or in the next row that has a cell. */
function nextCell(cells: MatrixCell[], from: Spot, rows: number, columns: number): Spot | null {
  const ahead = cells.filter((cell) =>
    columns !== 0 ? (cell.row - from.row || cell.column - from.column) * columns > 0 : (cell.row - from.row) * rows > 0,
  );
  const distance = (cell: Spot): number => Math.abs(cell.row - from.row) * 1e6 + Math.abs(cell.column - from.column);
  return ahead.reduce<Spot | null>((best, cell) => (!best || distance(cell) < distance(best) ? cell : best), null);
}

/** Along the row in reading order, or down the column. */
function nextValue(values: Float32Array, count: number, from: Spot, step: number): Spot | null {
  for (let at = from.row * count + from.column + step; at >= 0 && at < values.length; at += step) {
    if (values[at] === values[at]) return { row: Math.floor(at / count), column: at % count };
  }
  return null;
}
