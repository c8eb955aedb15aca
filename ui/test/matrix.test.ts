import { describe, expect, it } from "vitest";
import { denseGrid, sparseGrid, type MatrixCell } from "../src/charts/matrixGrid";

const COUNT = 4;
const CELLS: [row: number, column: number][] = [
  [0, 1],
  [0, 3],
  [2, 0],
  [3, 1],
];
const cell = ([row, column]: [number, number]): MatrixCell => ({
  row,
  column,
  fraction: 0.5,
  marked: row === 2,
  small: false,
});
const values = new Float32Array(COUNT * COUNT).fill(NaN);
for (const [row, column] of CELLS) values[row * COUNT + column] = 0.5;

const sparse = sparseGrid(CELLS.map(cell), COUNT);
const dense = denseGrid(values, COUNT, [{ row: 2, column: 0 }]);

describe.each([
  ["sparse", sparse],
  ["dense", dense],
])("the cells of a %s matrix", (_, grid) => {
  it("are found under the pointer, or near it when cells are smaller than pixels", () => {
    expect(grid.nearest({ row: 0.9, column: 1.2 }, 0)).toMatchObject({ row: 0, column: 1 });
    expect(grid.nearest({ row: 1.5, column: 2.5 }, 0)).toBeNull();
    expect(grid.nearest({ row: 1.5, column: 2.5 }, 1)).toMatchObject({ row: 0, column: 1 });
    expect(grid.nearest({ row: 1.5, column: 9 }, 1)).toBeNull();
  });

  it("follow each other in reading order", () => {
    expect(grid.next({ row: 0, column: 1 }, 0, 1)).toMatchObject({ row: 0, column: 3 });
    expect(grid.next({ row: 0, column: 3 }, 0, 1)).toMatchObject({ row: 2, column: 0 });
    expect(grid.next({ row: 0, column: 1 }, 0, -1)).toBeNull();
  });

  it("know which of them a finding names", () => expect(grid.marked).toMatchObject([{ row: 2, column: 0 }]));
});

it("a step down leads to the next row that has a cell, or down the column", () => {
  expect(sparse.next({ row: 0, column: 3 }, 1, 0)).toMatchObject({ row: 2, column: 0 });
  expect(dense.next({ row: 0, column: 1 }, 1, 0)).toEqual({ row: 3, column: 1 });
});
