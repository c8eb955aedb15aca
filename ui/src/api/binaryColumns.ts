// Columns as the server sends them for canvases: a small JSON header, then typed arrays used as they lie.
import { Columns, type Numbers } from "./columns";

interface ColumnHeader {
  name: string;
  type: "u1" | "u2" | "i4" | "f4" | "f8";
  at: number;
  texts?: (string | null)[];
}

export interface BinaryTable {
  columns: Columns;
  /** Whatever else the header says. */
  about: Record<string, unknown>;
}

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

export function decodeColumns(buffer: ArrayBuffer): BinaryTable {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(0, 4)) !== "PLC1") throw new Error("not columns");
  const length = new DataView(buffer).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))) as {
    rows: number;
    columns: ColumnHeader[];
  } & Record<string, unknown>;
  const start = Math.ceil((8 + length) / 8) * 8;
  const columns = new Columns(undefined, header.rows);
  for (const { name, type, at, texts } of header.columns) {
    const values: Numbers = new ARRAYS[type](buffer, start + at, header.rows);
    if (texts) columns.setTexts(name, values, texts);
    else columns.setNumbers(name, values);
  }
  return { columns, about: header };
}
