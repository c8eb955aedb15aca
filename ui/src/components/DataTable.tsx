// A sortable table: numbers to the right in one unit per column, the worst first, the rest on demand.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useText } from "../i18n/text";

export interface Column<Row> {
  name: string;
  unit?: string;
  /** What is sorted by and, without `show`, shown. */
  value: (row: Row) => number | string;
  show?: (row: Row) => ComponentChildren;
  text?: boolean;
}

const MOST_ACCUSED = 5;

interface DataTableProps<Row> {
  columns: Column<Row>[];
  rows: Row[];
  sortedBy?: number;
  ascending?: boolean;
  most?: number;
  marked?: (row: Row) => boolean;
  onPick?: (row: Row) => void;
  caption: string;
}

export function DataTable<Row>(props: DataTableProps<Row>) {
  const { columns, rows, marked, onPick } = props;
  const t = useText();
  const [order, setOrder] = useState({ by: props.sortedBy ?? -1, ascending: props.ascending ?? false });
  const [all, setAll] = useState(false);
  const sorted = order.by < 0 ? rows : sortRows(rows, columns[order.by].value, order.ascending);
  const most = props.most ?? 12;
  // Who is accused is always in sight, wherever the order puts it.
  const accused = all || !marked ? [] : sorted.slice(most).filter(marked).slice(0, MOST_ACCUSED);
  const shown = all ? sorted : [...sorted.slice(0, most), ...accused];
  const sortBy = (by: number): void =>
    setOrder((old) => ({ by, ascending: old.by === by ? !old.ascending : Boolean(columns[by].text) }));
  return (
    <div class="table">
      <table>
        <caption class="unseen">{props.caption}</caption>
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th key={i} class={column.text ? "text" : undefined} aria-sort={ariaSort(order, i)} scope="col">
                <button type="button" title={t("ui.table.sort", { name: column.name })} onClick={() => sortBy(i)}>
                  {column.name}
                  {column.unit && <small> {column.unit}</small>}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, i) => (
            <tr
              key={i}
              class={marked?.(row) ? "culprit" : undefined}
              {...(onPick ? { onClick: () => onPick(row), "data-pick": "" } : {})}
            >
              {columns.map((column, c) => (
                <td key={c} class={column.text ? "text" : undefined}>
                  {column.show ? column.show(row) : column.value(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > most && !all && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          {t("ui.table.more", { n: rows.length.toLocaleString("en-US") })}
        </button>
      )}
    </div>
  );
}

function sortRows<Row>(rows: Row[], value: (row: Row) => number | string, ascending: boolean): Row[] {
  const sign = ascending ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (typeof left === "string" || typeof right === "string") return sign * String(left).localeCompare(String(right));
    if (Number.isNaN(left) || Number.isNaN(right)) return Number(Number.isNaN(left)) - Number(Number.isNaN(right));
    return sign * (left - right);
  });
}

function ariaSort(order: { by: number; ascending: boolean }, column: number): "ascending" | "descending" | "none" {
  if (order.by !== column) return "none";
  return order.ascending ? "ascending" : "descending";
}
