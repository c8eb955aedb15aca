// Columns as they travel in a report or an API answer: JSON lists, base64 typed arrays, or dictionary-coded texts.

import type { PackedF32, PackedI32, PackedTexts, PackedU16, PackedU8, ReportTables } from "./types";

export type Numbers = ArrayLike<number>;

export type PackedTable = ReportTables["tables"][string];
type PackedColumn = PackedTable[string];
type PackedNumbers = PackedU8 | PackedU16 | PackedI32 | PackedF32;

/** A table read by column; a column nobody sent is empty, an unknown number is NaN. A packed one is unpacked when asked for. */
export class Columns {
  readonly length: number;
  private readonly numbers = new Map<string, Numbers>();
  private readonly strings = new Map<string, (string | null)[]>();
  private readonly packed = new Map<string, PackedNumbers | PackedTexts>();

  constructor(packed: PackedTable | undefined, rows = 0) {
    let length = rows;
    for (const [name, column] of Object.entries(packed ?? {})) {
      if (Array.isArray(column)) this.keep(name, column);
      else this.packed.set(name, column);
      length = Math.max(length, rowsOf(column));
    }
    this.length = length;
  }

  num(name: string): Numbers {
    this.unpack(name);
    return this.numbers.get(name) ?? new Float64Array(this.length).fill(NaN);
  }

  text(name: string): (string | null)[] {
    this.unpack(name);
    return this.strings.get(name) ?? new Array<string | null>(this.length).fill(null);
  }

  setNumbers(name: string, values: Numbers): void {
    this.numbers.set(name, values);
  }

  /** Texts as places in a list of distinct texts. */
  setTexts(name: string, codes: Numbers, texts: (string | null)[]): void {
    this.strings.set(
      name,
      Array.from(codes, (code) => texts[code]),
    );
  }

  private keep(name: string, column: (number | string | null)[]): void {
    if (column.some((value) => typeof value === "string")) this.strings.set(name, column as (string | null)[]);
    else
      this.numbers.set(
        name,
        Float64Array.from(column as (number | null)[], (value) => value ?? NaN),
      );
  }

  private unpack(name: string): void {
    const column = this.packed.get(name);
    if (!column) return;
    this.packed.delete(name);
    if (column.kind === "texts") this.strings.set(name, unpackTexts(column));
    else this.numbers.set(name, unpackNumbers(column));
  }
}

const WIDTHS = { u8: 1, u16: 2, i32: 4, f32: 4 };

function rowsOf(column: PackedColumn): number {
  if (Array.isArray(column)) return column.length;
  if (column.kind === "texts") return rowsOf(column.codes);
  const padding = column.base64.endsWith("==") ? 2 : column.base64.endsWith("=") ? 1 : 0;
  return ((column.base64.length / 4) * 3 - padding) / WIDTHS[column.kind];
}

function unpackTexts(column: PackedTexts): (string | null)[] {
  const codes = Array.isArray(column.codes) ? column.codes : unpackNumbers(column.codes);
  return Array.from(codes as ArrayLike<number>, (code) => column.texts[code]);
}

function unpackNumbers(column: PackedNumbers): Numbers {
  const text = atob(column.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  switch (column.kind) {
    case "u8":
      return bytes;
    case "u16":
      return new Uint16Array(bytes.buffer);
    case "i32":
      return new Int32Array(bytes.buffer);
    case "f32":
      return new Float32Array(bytes.buffer);
  }
}
