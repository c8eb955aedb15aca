// Links: the matrix, the slowest against their kind, and what each transport carries.
import { useMemo, useState } from "preact/hooks";
import { categoryColor, MATRIX_START } from "../charts/color";
import type { ComponentChildren } from "preact";
import { Matrix } from "../charts/Matrix";
import { MATRIX_COLOR, sparseGrid } from "../charts/matrixGrid";
import { Ramp, type RampMark } from "../charts/Ramp";
import { Choice } from "../components/Choice";
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import type { Tip } from "../charts/tooltip";
import { linkKey } from "../api/focus";
import { METRICS, readLinks, slowestLinks, type LinkRow, type Metric } from "../api/links";
import { bytes, count, duration, fixed, percent, rate, rateColumn, UNKNOWN } from "../i18n/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";
import { hostCells, rankCells, scaleFor, type LinkCell, type MatrixView } from "./linkCells";
import { TransportTable } from "./TransportTable";

/** Above this a cell of a rank matrix is thinner than two pixels: hosts first. */
const RANKS_AT_ONCE = 256;

export function Links() {
  const t = useText();
  const { document, cluster, focus } = useRunData();
  const rows = useMemo(() => readLinks(document.tables.links), [document]);
  const slowest = useMemo(() => {
    const found = slowestLinks(rows, 200);
    const accused = rows.filter((row) => focus.links.has(linkKey(row.src, row.dst)) && !found.includes(row));
    return [...found, ...accused];
  }, [rows, focus]);
  const names = useMemo(() => [...new Set(rows.map((row) => row.transport))], [rows]);
  const [metric, setMetric] = useState<Metric>("bandwidth");
  const [transport, setTransport] = useState("");
  const [picked, setPicked] = useState<"ranks" | "hosts" | null>(null);
  const [link, setLink] = useState<LinkRow | null>(null);
  const wanted = link ?? focus.firstLink;
  const grain = picked ?? (wanted || cluster.ranks.length <= RANKS_AT_ONCE ? "ranks" : "hosts");
  const shown = useMemo(() => {
    const view: MatrixView = {
      cluster,
      rows: rows.filter((row) => !transport || row.transport === transport),
      metric,
      names,
      focus,
    };
    return grain === "ranks" ? rankCells(view) : hostCells(view, document.tables.host_links, transport);
  }, [cluster, rows, transport, metric, names, focus, grain, document]);
  const grid = useMemo(() => sparseGrid(shown.cells, shown.axis.count), [shown]);
  const target = useMemo(() => {
    if (!wanted || grain !== "ranks") return null;
    const [row, column] = [cluster.place.get(wanted.src), cluster.place.get(wanted.dst)];
    return row === undefined || column === undefined ? null : { row, column };
  }, [wanted, grain, cluster]);
  if (rows.length === 0) {
    return (
      <Section id="links" title={t("ui.links.title", { metric: t(`ui.column.${metric}` as Key) })}>
        <Empty title={t("ui.links.empty")} text={t("ui.links.empty.text")} />
        {document.tables.transports.length > 0 && <TransportTable />}
      </Section>
    );
  }
  return (
    <Section id="links" title={t("ui.links.title", { metric: t(`ui.column.${metric}` as Key) })}>
      <div class="controls">
        <Choice
          label={t("ui.links.metric")}
          value={metric}
          onChange={setMetric}
          options={METRICS.map((value) => ({ value, label: t(`ui.column.${value}` as Key) }))}
        />
        <Choice
          label={t("ui.column.transport")}
          value={transport}
          onChange={setTransport}
          options={[{ value: "", label: t("ui.filter.all") }, ...names.map((name) => ({ value: name, label: name }))]}
        />
        {cluster.hosts.length > 1 && (
          <Choice
            label={t("ui.links.cells")}
            value={grain}
            onChange={setPicked}
            options={[
              { value: "ranks", label: t("ui.links.cells.ranks") },
              { value: "hosts", label: t("ui.links.cells.hosts") },
            ]}
          />
        )}
      </div>
      <div class="split">
        <div>
          <Matrix
            axis={shown.axis}
            grid={grid}
            tip={(spot) => tipOf(grid.cellAt(spot), t)}
            target={target}
            label={t("ui.links.label", { n: count(shown.cells.length) })}
          />
          <LinkRamp
            metric={metric}
            ends={scaleFor(metric, shown.values).ends}
            names={names}
            marks={marksOf(shown.cells, metric)}
          />
          <p class="note">
            {shown.cells.some((cell) => cell.small) && `${t("ui.links.small")} `}
            {t("ui.links.hint")}
          </p>
        </div>
        <div>
          <h3>{t("ui.links.slowest")}</h3>
          <p class="note">{t("ui.links.slowest.note")}</p>
          <DataTable
            columns={slowColumns(t)}
            rows={slowest}
            most={14}
            caption={t("ui.links.slowest")}
            marked={(row) => focus.links.has(linkKey(row.src, row.dst))}
            onPick={(row) => {
              setPicked("ranks");
              setLink(row);
            }}
          />
        </div>
      </div>
      {rows.length < document.all_links && <p class="note">{t("ui.links.cut", { n: count(rows.length) })}</p>}
      {document.unplaced_links > 0 && (
        <p class="note">{t("ui.links.unplaced", { n: count(document.unplaced_links) })}</p>
      )}
      <TransportTable />
    </Section>
  );
}

export function tipOf(cell: LinkCell | undefined, t: Text): Tip | null {
  if (!cell) return null;
  return {
    title: cell.title,
    lines: cell.parts.flatMap((part): [string, string][] => [
      [part.transport, part.links > 1 ? t("ui.links.count", { n: count(part.links) }) : ""],
      [
        t("ui.column.bandwidth"),
        `${rate(part.bandwidth)}${Number.isFinite(part.utilisation) ? ` · ${percent(part.utilisation)}` : ""}`,
      ],
      [t("ui.column.ratio"), Number.isFinite(part.ratio) ? percent(part.ratio) : UNKNOWN],
      [t("ui.column.bytes"), bytes(part.bytes)],
      [t("ui.column.time"), duration(part.time)],
    ]),
  };
}

function slowColumns(t: Text): Column<LinkRow>[] {
  const speed = rateColumn([10]);
  return [
    {
      name: t("ui.links.link"),
      text: true,
      value: (row) => row.src,
      show: (row) => <button type="button" class="plain">{`${row.src} → ${row.dst}`}</button>,
    },
    { name: t("ui.column.transport"), text: true, value: (row) => row.transport },
    {
      name: t("ui.column.bandwidth"),
      unit: speed.unit,
      value: (row) => row.bandwidth,
      show: (row) => speed.format(row.bandwidth),
    },
    {
      name: t("ui.column.reference"),
      unit: speed.unit,
      value: (row) => row.reference,
      show: (row) => speed.format(row.reference),
    },
    {
      name: t("ui.column.ratio"),
      unit: "%",
      value: (row) => row.ratio,
      show: (row) => fixed(100 * row.ratio, 0),
    },
  ];
}

/** The values of the links the finding names, the first three. */
function marksOf(cells: LinkCell[], metric: Metric): RampMark[] {
  if (metric === "transport") return [];
  const named = cells.filter((cell) => cell.marked && Number.isFinite(cell.fraction)).slice(0, MOST_MARKS);
  return named.map((cell) => {
    const main = cell.parts.reduce((most, part) => (part.time > most.time ? part : most));
    return { at: cell.fraction, label: `${cell.title} ${SHOW[metric](main[metric])}` };
  });
}

const MOST_MARKS = 3;

/** How a metric of a link is written. */
export const SHOW: Record<Exclude<Metric, "transport">, (value: number) => string> = {
  bandwidth: rate,
  ratio: (value) => percent(value),
  utilisation: (value) => percent(value),
  bytes,
  time: duration,
};

interface LinkRampProps {
  metric: Metric;
  ends: [number, number];
  names: string[];
  marks?: RampMark[];
  children?: ComponentChildren;
}

/** The legend of a matrix of links: a scale, or the transports. */
export function LinkRamp({ metric, ends, names, marks, children }: LinkRampProps) {
  const t = useText();
  if (metric === "transport") {
    return (
      <ul class="legend">
        {names.map((name, i) => (
          <li key={name}>
            <i style={{ background: categoryColor(i, names.length, MATRIX_COLOR) }} />
            {name}
          </li>
        ))}
      </ul>
    );
  }
  const show = SHOW[metric];
  return (
    <Ramp
      color={MATRIX_COLOR}
      start={MATRIX_START}
      ends={[show(ends[0]), show(ends[1])]}
      title={t(`ui.column.${metric}` as Key)}
      {...(marks ? { marks } : {})}
    >
      {children}
    </Ramp>
  );
}
