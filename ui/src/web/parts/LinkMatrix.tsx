// The whole network at once: sender × receiver, from typed columns.
import { useMemo } from "preact/hooks";
import { DenseMatrix, type Spot } from "../../charts/DenseMatrix";
import { clamp } from "../../charts/scale";
import { Choice } from "../../components/Choice";
import { Empty, Section } from "../../components/Section";
import type { Cluster } from "../../data/cluster";
import type { Columns } from "../../data/columns";
import { references, type Reference } from "../../data/links";
import { bytes, count, duration, percent, rate } from "../../format/numbers";
import { useText, type Key, type Text } from "../../i18n/text";
import { useScene } from "../../views/context";
import { address, useColumns } from "../api";
import { runAddress, useRouter, useSetting } from "../router";
import { useWords } from "../words";
import { Pick, StepPick } from "./Filters";
import { Trouble } from "./Trouble";

const METRICS = ["bandwidth", "utilisation", "bytes", "time"] as const;
type Metric = (typeof METRICS)[number];
const SHOW: Record<Metric, (value: number) => string> = { bandwidth: rate, utilisation: (value) => percent(value), bytes, time: duration };
/** A matrix of more ranks than this is shown by host: its cells would fill the memory of the browser, and no screen shows them. */
const RANKS_AT_ONCE = 2048;

export function LinkMatrix({ run }: { run: string }) {
  const w = useWords();
  const t = useText();
  const { place, go } = useRouter();
  const { cluster, document, focus } = useScene();
  const [metric, setMetric] = useSetting("metric", "bandwidth");
  const [wanted, setGrain] = useSetting("cells", "ranks");
  const many = cluster.ranks.length > RANKS_AT_ONCE;
  const grain = many ? "hosts" : wanted;
  const transport = place.query.get("transport") ?? "";
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/links`, { step: place.query.get("step") }));
  const speeds = useMemo(() => references(document.tables.transports, document.nominal), [document]);
  const names = useMemo(() => [...new Set(asked.value?.columns.text("transport") ?? [])].filter((name): name is string => name !== null), [asked.value]);
  const cells = useMemo(
    () => (asked.value ? matrixOf(asked.value.columns, { cluster, byHost: grain === "hosts", transport, metric: metric as Metric, speeds }) : null),
    [asked.value, cluster, grain, transport, metric, speeds],
  );
  const marked = useMemo((): Spot[] => [...focus.links].flatMap((key) => {
    const [src, dst] = key.split("-").map((rank) => (grain === "hosts" ? cluster.byRank.get(Number(rank))?.hostIndex : cluster.place.get(Number(rank))));
    return src === undefined || dst === undefined ? [] : [{ row: src, column: dst }];
  }), [focus, cluster, grain]);
  const asking = place.query.get("finding") !== null;
  const target = useMemo(() => (asking && marked[0]) || null, [marked, asking]);
  if (asked.problem) return <Trouble problem={asked.problem} />;
  if (asked.value && asked.value.columns.length === 0) return <Empty title={t("links.empty")} text={t("links.empty.text")} />;
  const pick = (spot: Spot): void => {
    if (grain === "hosts") go(runAddress(run, "communication", { tab: "links", host: cluster.hosts[spot.row]?.name }));
    else go(runAddress(run, "communication", { tab: "links", src: cluster.order[spot.row].rank, dst: cluster.order[spot.column].rank }));
  };
  return (
    <Section id="matrix" title={t("links.title")}>
      <div class="controls">
        <Choice label={t("links.metric")} value={metric as Metric} onChange={setMetric} options={METRICS.map((value) => ({ value, label: t(`links.metric.${value}` as Key) }))} />
        {cluster.hosts.length > 1 && !many && <Choice label={t("links.cells")} value={grain} onChange={setGrain} options={[{ value: "ranks", label: t("links.cells.ranks") }, { value: "hosts", label: t("links.cells.hosts") }]} />}
        <Pick name="transport" label={w("col.transport")} all={w("filter.all")} options={names.map((name) => [name, name] as const)} />
        <StepPick all />
      </div>
      {cells && (
        <>
          <DenseMatrix axis={cells.axis} values={cells.fractions} marked={marked} target={target} label={t("links.label", { n: count(cells.links) })}
            tip={(spot) => tipOf(cells, spot, t)} onPick={pick} />
          <div class="ramp cividis"><span>{SHOW[metric as Metric](cells.ends[0])}</span><i /><span>{SHOW[metric as Metric](cells.ends[1])}</span><em>{t(`links.metric.${metric}` as Key)} · {t("links.count", { n: count(cells.links) })}</em><span class="none"><b aria-hidden="true" />{w("comm.matrix.none")}</span></div>
          <p class="note">{t("links.hint")} {w("comm.matrix.pick")}</p>
          {document.unplacedLinks > 0 && <p class="note">{t("links.unplaced", { n: count(document.unplacedLinks) })}</p>}
        </>
      )}
    </Section>
  );
}

interface Question {
  cluster: Cluster;
  byHost: boolean;
  transport: string;
  metric: Metric;
  speeds: Map<string, Reference>;
}

export interface Cells {
  axis: { count: number; boundaries: number[]; names: boolean; label: (place: number) => string };
  fractions: Float32Array;
  bytes: Float32Array;
  time: Float32Array;
  utilisation: Float32Array;
  ends: [number, number];
  links: number;
  title: (spot: Spot) => string;
}

/** Sums links into cells; bandwidth is always sum(bytes) / sum(time). */
export function matrixOf(table: Columns, { cluster, byHost, transport, metric, speeds }: Question): Cells {
  const side = byHost ? cluster.hosts.length : cluster.order.length;
  const size = side * side;
  const [sum, time, full] = [new Float32Array(size), new Float32Array(size), new Float32Array(size)];
  const [src, dst, moved, spent] = ["src", "dst", "bytes", "time"].map((name) => table.num(name));
  const transports = table.text("transport");
  const places = placesOf(cluster, byHost);
  let links = 0;
  for (let i = 0; i < table.length; i++) {
    if (transport && transports[i] !== transport) continue;
    const [row, column] = [places[src[i]], places[dst[i]]];
    if (row === undefined || column === undefined || row < 0 || column < 0) continue;
    const at = row * side + column;
    sum[at] += moved[i];
    time[at] += spent[i];
    full[at] += spent[i] * (speeds.get(transports[i] ?? "?")?.speed ?? NaN);
    links++;
  }
  const values = new Float32Array(size).fill(NaN);
  const utilisation = new Float32Array(size).fill(NaN);
  let [low, high] = [Infinity, 0];
  for (let at = 0; at < size; at++) {
    if (time[at] === 0 && sum[at] === 0) continue;
    utilisation[at] = sum[at] / (full[at] * 1e6);
    const value = metric === "bytes" ? sum[at] : metric === "time" ? time[at] : metric === "utilisation" ? utilisation[at] : sum[at] / (time[at] * 1e6);
    values[at] = value;
    if (value > high) high = value;
    if (value < low && value > 0) low = value;
  }
  const logarithmic = metric === "bytes" || metric === "time";
  const span = Math.log(high / low) || 1;
  const fractions = values.map((value) => (logarithmic ? clamp(Math.log(value / low) / span, 0, 1) : clamp(value / (high || 1), 0, 1)));
  const label = byHost ? (at: number) => cluster.hosts[at]?.name ?? "" : (at: number) => String(cluster.order[at]?.rank ?? "");
  const boundaries = byHost ? [] : cluster.hosts.map((host) => cluster.place.get(host.ranks[0]?.rank ?? -1) ?? 0);
  return {
    axis: { count: side, boundaries, names: byHost, label }, fractions, bytes: sum, time, utilisation, links,
    ends: logarithmic ? [low === Infinity ? 0 : low, high] : [0, high],
    title: (spot) => `${label(spot.row)} → ${label(spot.column)}`,
  };
}

/** Rank → place, as an array: a Map look-up per link is what a million links cannot afford. */
function placesOf(cluster: Cluster, byHost: boolean): Int32Array {
  const most = cluster.ranks.reduce((high, rank) => Math.max(high, rank.rank), 0);
  const places = new Int32Array(most + 1).fill(-1);
  for (const rank of cluster.ranks) places[rank.rank] = byHost ? rank.hostIndex : cluster.place.get(rank.rank) ?? -1;
  return places;
}

function tipOf(cells: Cells, spot: Spot, t: Text) {
  const at = spot.row * cells.axis.count + spot.column;
  if (Number.isNaN(cells.fractions[at])) return null;
  const used = cells.utilisation[at];
  return {
    title: cells.title(spot),
    lines: [
      [t("links.bandwidth"), `${rate(cells.bytes[at] / (cells.time[at] * 1e6))}${Number.isFinite(used) ? ` · ${percent(used)}` : ""}`],
      [t("links.bytes"), bytes(cells.bytes[at])], [t("links.time"), duration(cells.time[at])],
    ] as [string, string][],
  };
}
