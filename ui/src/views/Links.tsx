// Links: the matrix, the slowest against their kind, and what each transport carries.
import { useMemo, useState } from "preact/hooks";
import { categoryColor } from "../charts/color";
import { Matrix } from "../charts/Matrix";
import { Choice } from "../components/Choice";
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { linkKey } from "../data/focus";
import { METRICS, readLinks, references, slowestLinks, type LinkRow, type Metric } from "../data/links";
import { bytes, count, duration, fixed, percent, rate, rateColumn } from "../format/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { useScene } from "./context";
import { hostCells, rankCells, scaleFor, type LinkCell, type MatrixView } from "./linkCells";
import { Transports } from "./Transports";

/** Above this a cell of a rank matrix is thinner than two pixels: hosts first. */
const RANKS_AT_ONCE = 256;

export function Links() {
  const t = useText();
  const { document, cluster, focus } = useScene();
  const rows = useMemo(() => readLinks(document.tables.links), [document]);
  const slowest = useMemo(() => {
    const found = slowestLinks(rows, 200);
    const accused = rows.filter((row) => focus.links.has(linkKey(row.src, row.dst)) && !found.includes(row));
    return [...found, ...accused];
  }, [rows, focus]);
  const speeds = useMemo(() => references(document.tables.transports, document.nominal), [document]);
  const names = useMemo(() => [...new Set(rows.map((row) => row.transport))], [rows]);
  const [metric, setMetric] = useState<Metric>("bandwidth");
  const [transport, setTransport] = useState("");
  const [picked, setPicked] = useState<"ranks" | "hosts" | null>(null);
  const [link, setLink] = useState<LinkRow | null>(null);
  const wanted = link ?? focus.firstLink;
  const grain = picked ?? (wanted || cluster.ranks.length <= RANKS_AT_ONCE ? "ranks" : "hosts");
  const shown = useMemo(() => {
    const view: MatrixView = { cluster, rows: rows.filter((row) => !transport || row.transport === transport), metric, speeds, names, focus };
    return grain === "ranks" ? rankCells(view) : hostCells(view, document.tables.host_links, transport);
  }, [cluster, rows, transport, metric, speeds, names, focus, grain, document]);
  const target = useMemo(() => {
    if (!wanted || grain !== "ranks") return null;
    const [row, column] = [cluster.place.get(wanted.src), cluster.place.get(wanted.dst)];
    return row === undefined || column === undefined ? null : { row, column };
  }, [wanted, grain, cluster]);
  if (rows.length === 0) {
    return (
      <Section id="links" title={t("links.title")}>
        <Empty title={t("links.empty")} text={t("links.empty.text")} />
        {document.tables.transports.length > 0 && <Transports speeds={speeds} />}
      </Section>
    );
  }
  return (
    <Section id="links" title={t("links.title")}>
      <div class="controls">
        <Choice label={t("links.metric")} value={metric} onChange={setMetric}
          options={METRICS.map((value) => ({ value, label: t(`links.metric.${value}` as Key) }))} />
        <Choice label={t("links.transport")} value={transport} onChange={setTransport}
          options={[{ value: "", label: t("links.all") }, ...names.map((name) => ({ value: name, label: name }))]} />
        {cluster.hosts.length > 1 && (
          <Choice label={t("links.cells")} value={grain} onChange={setPicked}
            options={[{ value: "ranks", label: t("links.cells.ranks") }, { value: "hosts", label: t("links.cells.hosts") }]} />
        )}
      </div>
      <div class="split">
        <div>
          <Matrix axis={shown.axis} cells={shown.cells} tip={(cell) => tipOf(cell, t)} target={target}
            label={t("links.label", { n: count(shown.cells.length) })} />
          <Ramp metric={metric} ends={scaleFor(metric, shown.values).ends} names={names} />
          <p class="note">
            {shown.cells.some((cell) => cell.small) && `${t("links.small")} `}{t("links.hint")}
          </p>
        </div>
        <div>
          <h3>{t("links.slowest")}</h3>
          <p class="note">{t("links.slowest.note")}</p>
          <DataTable columns={slowColumns(t)} rows={slowest} most={14} caption={t("links.slowest")}
            marked={(row) => focus.links.has(linkKey(row.src, row.dst))}
            onPick={(row) => { setPicked("ranks"); setLink(row); }} />
        </div>
      </div>
      {rows.length < document.allLinks && <p class="note">{t("links.cut", { n: count(rows.length) })}</p>}
      {document.unplacedLinks > 0 && <p class="note">{t("links.unplaced", { n: count(document.unplacedLinks) })}</p>}
      <Transports speeds={speeds} />
    </Section>
  );
}

function tipOf(cell: LinkCell, t: Text) {
  return {
    title: cell.title,
    lines: cell.parts.flatMap((part): [string, string][] => [
      [part.transport, part.links > 1 ? t("links.count", { n: count(part.links) }) : ""],
      [t("links.bandwidth"), `${rate(part.bandwidth)}${Number.isFinite(part.utilisation) ? ` · ${percent(part.utilisation)}` : ""}`],
      [t("links.bytes"), bytes(part.bytes)],
      [t("links.time"), duration(part.time)],
    ]),
  };
}

function slowColumns(t: Text): Column<LinkRow>[] {
  const speed = rateColumn([10]);
  return [
    { name: t("links.link"), text: true, value: (row) => row.src, show: (row) => <button type="button" class="plain">{`${row.src} → ${row.dst}`}</button> },
    { name: t("links.transport"), text: true, value: (row) => row.transport },
    { name: t("links.bandwidth"), unit: speed.unit, value: (row) => row.bandwidth, show: (row) => speed.format(row.bandwidth) },
    { name: t("links.peers"), unit: speed.unit, value: (row) => row.peers, show: (row) => speed.format(row.peers) },
    { name: t("links.ratio"), unit: "%", value: (row) => row.bandwidth / row.peers, show: (row) => fixed((100 * row.bandwidth) / row.peers, 0) },
  ];
}

function Ramp({ metric, ends, names }: { metric: Metric; ends: [number, number]; names: string[] }) {
  const t = useText();
  if (metric === "transport") {
    return (
      <ul class="legend">
        {names.map((name, i) => <li key={name}><i style={{ background: categoryColor(i, names.length) }} />{name}</li>)}
      </ul>
    );
  }
  const show = { bandwidth: rate, utilisation: (value: number) => percent(value), bytes, time: duration }[metric];
  return (
    <div class="ramp cividis">
      <span>{show(ends[0])}</span><i /><span>{show(ends[1])}</span><em>{t(`links.metric.${metric}` as Key)}</em>
    </div>
  );
}
