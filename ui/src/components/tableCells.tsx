// How a column of a server table is shown, by its kind: one unit and one number of decimals for a whole column.
import type { ComponentChildren } from "preact";
import type { Column, TableRows } from "../api/types";
import {
  bytesColumn,
  count,
  fixed,
  memoryColumn,
  msColumn,
  percent,
  rateColumn,
  signedPercent,
  UNKNOWN,
} from "../i18n/numbers";

export type Cell = TableRows["rows"][number][number];
export type Row = Record<string, Cell>;
export type Kind = Column["kind"];

export interface Shown {
  unit: string;
  show: (value: Cell) => ComponentChildren;
}

/** Fractions above or below a usual value, not shares of a whole. */
const SIGNED = new Set(["excess", "change"]);

export function shownAs(name: string, kind: Kind, values: Cell[]): Shown {
  const numbers = values.map((value) => (typeof value === "number" ? value : NaN));
  const number = (unit: string, format: (value: number) => string): Shown => ({
    unit,
    show: (value) => (typeof value === "number" ? format(value) : (value ?? UNKNOWN)),
  });
  switch (kind) {
    case "ms": {
      const { unit, format } = msColumn(numbers);
      return number(unit, format);
    }
    case "bytes": {
      const { unit, format } = bytesColumn(numbers);
      return number(unit, format);
    }
    case "memory": {
      const { unit, format } = memoryColumn(numbers);
      return number(unit, format);
    }
    case "rate": {
      const { unit, format } = rateColumn(numbers);
      return number(unit, format);
    }
    case "fraction":
      return number("", SIGNED.has(name) ? signedPercent : percent);
    case "count":
      // A number that names something is not a quantity: step 1010, not 1,010.
      if (name === "step") return number("", String);
      return number("", (value) =>
        Number.isInteger(value) ? (String(value).length > 9 ? String(value) : count(value)) : fixed(value, 1),
      );
    case "number":
      return number("", big);
    default:
      return { unit: "", show: (value) => value ?? UNKNOWN };
  }
}

/** 1.2e13 → "12.0 T" */
export function big(value: number): string {
  if (!Number.isFinite(value)) return UNKNOWN;
  const magnitude = Math.abs(value);
  const power = magnitude >= 1000 ? Math.min(6, Math.floor(Math.log10(magnitude) / 3)) : 0;
  const scaled = value / 1000 ** power;
  const text = fixed(
    scaled,
    power === 0 && Number.isInteger(scaled) ? 0 : Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2,
  );
  return power ? `${text} ${["", "K", "M", "G", "T", "P", "E"][power]}` : text;
}
