// A table the server sorts, filters and pages; its order and place live in the address, and it can be taken away whole.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { isKey, useText } from "../i18n/text";
import type { TableRows } from "../api/types";
import { address, useJson, type Query } from "../api/client";
import { unreadableFilter } from "../api/rankList";
import { useRouter } from "./router";
import { shownAs, type Cell, type Kind, type Row } from "./tableCells";
import { ProblemMessage } from "./ProblemMessage";

interface ServerTableProps {
  name: string;
  /** Whose table it is; or `path`, where it is asked for. */
  run?: string;
  path?: string;
  filters?: Query;
  /** Columns nobody needs to see, or that are always empty here. */
  hidden?: readonly string[];
  /** Columns that show something even where nothing was recorded. */
  always?: readonly string[];
  sort: string;
  caption: string;
  /** Keeps two tables of one page apart in its address. */
  prefix?: string;
  size?: number;
  /** What to show instead of the plain value. */
  render?: Record<string, (row: Row) => ComponentChildren>;
  marked?: (row: Row) => boolean;
  empty?: string;
}

/** Spread over the whole page, few columns are too far apart to read across. */
const FEW_COLUMNS = 6;

const DESCENDING = new Set<Kind>(["ms", "bytes", "memory", "rate", "fraction", "count", "number"]);

export function ServerTable({
  name,
  run = "",
  path = `runs/${encodeURIComponent(run)}/tables/${name}`,
  filters = {},
  hidden = [],
  always = [],
  sort: usual,
  caption,
  prefix = "",
  size = 25,
  render = {},
  marked,
  empty,
}: ServerTableProps) {
  const t = useText();
  const { place, set } = useRouter();
  const sort = place.query.get(`${prefix}sort`) ?? usual;
  const page = Math.max(0, Number(place.query.get(`${prefix}page`) ?? 1) - 1) || 0;
  const unreadable = unreadableFilter(filters);
  const { value, problem, busy } = useJson<TableRows>(
    unreadable === null ? address(path, { ...filters, sort, offset: page * size, limit: size }) : null,
  );
  const rows = useMemo(
    () =>
      (value?.rows ?? []).map((row): Row =>
        Object.fromEntries(value!.columns.map((column, i) => [column.name, row[i]])),
      ),
    [value],
  );
  // An address from before a filter, or mistyped, may ask for a page that is not there.
  const last = value ? Math.max(0, Math.ceil(value.total / size) - 1) : page;
  useEffect(() => {
    if (page > last) set({ [`${prefix}page`]: last === 0 ? null : last + 1 });
  }, [page, last]);
  if (unreadable !== null) return <UnreadableRanks text={unreadable} />;
  if (problem) return <ProblemMessage problem={problem} />;
  if (!value) return <div class="table waiting-table" aria-busy="true" />;
  if (value.total === 0) return <p class="note">{empty ?? t("ui.web.table.empty")}</p>;
  const columns = value.columns
    .map((column) => ({
      ...column,
      shown: shownAs(
        column.name,
        column.kind,
        rows.map((row) => row[column.name]),
      ),
    }))
    .filter(
      (column) =>
        !hidden.includes(column.name) &&
        (always.includes(column.name) || rows.some((row) => row[column.name] !== null)),
    );
  const guided = columns.some((column) => column.name === "forward_backward");
  const sortBy = (column: { name: string; kind: Kind }): void => {
    const first = DESCENDING.has(column.kind) ? `-${column.name}` : column.name;
    const other = DESCENDING.has(column.kind) ? column.name : `-${column.name}`;
    set({ [`${prefix}sort`]: sort === first ? other : first, [`${prefix}page`]: null });
  };
  return (
    <div class={columns.length <= FEW_COLUMNS ? "table few" : "table"} data-table={name} aria-busy={busy}>
      <table>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.name}
                scope="col"
                class={column.kind === "text" ? "text" : undefined}
                aria-sort={ariaSort(sort, column.name)}
              >
                <button
                  type="button"
                  title={t("ui.table.sort", { name: titleOf(name, column.name, t) })}
                  onClick={() => sortBy(column)}
                >
                  {titleOf(name, column.name, t)}
                  {guided && <GuideName column={column.name} />}
                  {column.shown.unit && !render[column.name] && <small> {column.shown.unit}</small>}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i} class={marked?.(row) ? "culprit" : undefined}>
              {columns.map((column) => (
                <td
                  key={column.name}
                  class={column.kind === "text" ? "text" : undefined}
                  title={column.kind === "text" ? longText(row[column.name]) : undefined}
                >
                  {render[column.name]?.(row) ?? column.shown.show(row[column.name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <div class="pager">
        <span>
          {t("ui.web.table.range", {
            from: (page * size + 1).toLocaleString("en-US"),
            to: Math.min(value.total, (page + 1) * size).toLocaleString("en-US"),
            total: value.total.toLocaleString("en-US"),
          })}
        </span>
        {value.total > size && (
          <>
            <button
              type="button"
              disabled={page === 0}
              onClick={() => set({ [`${prefix}page`]: page === 1 ? null : page })}
            >
              {t("ui.web.table.before")}
            </button>
            <button
              type="button"
              disabled={(page + 1) * size >= value.total}
              onClick={() => set({ [`${prefix}page`]: page + 2 })}
            >
              {t("ui.web.table.next")}
            </button>
          </>
        )}
        <a class="export" href={address(`${path}/csv`, { ...filters, sort })} download>
          {t("ui.web.table.export")}
        </a>
      </div>
    </div>
  );
}

/** A filter that means nothing must not leave the rows of the last one standing. */
export function UnreadableRanks({ text }: { text: string }) {
  const t = useText();
  return (
    <p class="note" role="alert">
      {t("ui.web.filter.badranks", { text })} {t("ui.web.filter.badranks.hint")}
    </p>
  );
}

/** What MindInsight calls a column, where the recording has its phases. */
function GuideName({ column }: { column: string }) {
  const t = useText();
  const key = `ui.web.guide.${column}`;
  return isKey(key) ? <small class="guide">{t(key)}</small> : null;
}

/** What may be cut off is told whole where the pointer rests. */
const longText = (value: Cell): string | undefined =>
  typeof value === "string" && value.length > 36 ? value : undefined;

/** A column may mean something else in one table: `col.arrivals.duration`. */
function titleOf(table: string, name: string, t: ReturnType<typeof useText>): string {
  const key = [`ui.column.${table}.${name}`, `ui.column.${name}`].find(isKey);
  return key ? t(key) : name;
}

function ariaSort(sort: string, name: string): "ascending" | "descending" | "none" {
  if (sort === name) return "ascending";
  return sort === `-${name}` ? "descending" : "none";
}
