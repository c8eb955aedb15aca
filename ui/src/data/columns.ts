// Columns as they travel in a report or an API answer: JSON lists, base64 typed arrays, or dictionary-coded texts.

export type Numbers = ArrayLike<number>;

export interface PackedNumbers {
  kind: "u8" | "u16" | "i32" | "f32";
  base64: string;
}

export interface PackedTexts {
  texts: (string | null)[];
  codes: PackedNumbers | number[];
}

export type PackedColumn = (number | string | null)[] | PackedNumbers | PackedTexts;
export type PackedTable = Record<string, PackedColumn>;

/** A table read by column; a column nobody sent is empty, an unknown number is NaN. */
export class Columns {
  readonly length: number;
  private readonly numbers = new Map<string, Numbers>();
  private readonly strings = new Map<string, (string | null)[]>();

  constructor(packed: PackedTable | undefined, rows = 0) {
    let length = rows;
    for (const [name, column] of Object.entries(packed ?? {})) {
      length = Math.max(length, this.unpack(name, column));
    }
    this.length = length;
  }

  num(name: string): Numbers {
    return this.numbers.get(name) ?? new Float64Array(this.length).fill(NaN);
  }

  text(name: string): (string | null)[] {
    return this.strings.get(name) ?? new Array<string | null>(this.length).fill(null);
  }

  setNumbers(name: string, values: Numbers): void {
    this.numbers.set(name, values);
  }

  /** Texts as places in a list of distinct texts. */
  setTexts(name: string, codes: Numbers, texts: (string | null)[]): void {
    this.strings.set(name, Array.from(codes, (code) => texts[code]));
  }

  private unpack(name: string, column: PackedColumn): number {
    if (Array.isArray(column)) {
      if (column.some((value) => typeof value === "string")) this.strings.set(name, column as (string | null)[]);
      else this.numbers.set(name, Float64Array.from(column as (number | null)[], (value) => value ?? NaN));
      return column.length;
    }
    const values = "texts" in column ? unpackTexts(column) : unpackNumbers(column);
    if ("texts" in column) this.strings.set(name, values as (string | null)[]);
    else this.numbers.set(name, values as Numbers);
    return values.length;
  }
}

function unpackTexts(column: PackedTexts): (string | null)[] {
  const codes = Array.isArray(column.codes) ? column.codes : unpackNumbers(column.codes);
  return Array.from(codes, (code) => column.texts[code]);
}

function unpackNumbers(column: PackedNumbers): Numbers {
  const bytes = Uint8Array.from(atob(column.base64), (character) => character.charCodeAt(0));
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
