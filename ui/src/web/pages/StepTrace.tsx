// Every rank's step: where its time goes, how it differs from its peers, step after step.
import { useCallback, useMemo } from "preact/hooks";
import { HeatMap } from "../../charts/HeatMap";
import { RankBars, type Bar } from "../../charts/RankBars";
import { clamp } from "../../charts/scale";
import { Empty, Section } from "../../components/Section";
import { PartLegend } from "../../components/StackedBar";
import { median, meanParts, PARTS, readShares, type Cluster, type Share } from "../../data/cluster";
import type { Columns } from "../../data/columns";
import { duration, percent, ranges, signedPercent } from "../../format/numbers";
import { useText, type Key } from "../../i18n/text";
import { kindName } from "../../views/Collectives";
import { useScene } from "../../views/context";
import { fullName } from "../../views/names";
import { address, useColumns, useJson } from "../api";
import { HostPick, Pick, StagePick, StepPick, Title } from "../parts/Filters";
import { rankCell } from "../parts/RankLink";
import { ServerTable } from "../parts/ServerTable";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter } from "../router";
import { useWords } from "../words";

const COLORS = PARTS.map((part) => part as string);
/** Own time this far above its peers has the brightest colour; less must not be stretched over the scale. */
const FULL_EXCESS = 0.25;

export function StepTrace({ run }: { run: string }) {
  const w = useWords();
  const t = useText();
  const { place, go } = useRouter();
  const { cluster, focus } = useScene();
  const filters = Object.fromEntries(["step", "host", "stage", "group"].map((name) => [name, place.query.get(name)]));
  const path = `runs/${encodeURIComponent(run)}`;
  const asked = useColumns(address(`${path}/charts/breakdown`, { step: filters.step }));
  const groups = useJson<{ rows: [string, string, number, string][] }>(address(`${path}/tables/groups`, { limit: 500 }));
  const members = useMemo(() => (filters.group ? groups.value?.rows.find(([name]) => name === filters.group)?.[3] : undefined), [filters.group, groups.value]);
  const chosen = useMemo(() => chosenRanks(cluster, filters.host, filters.stage, members), [cluster, filters.host, filters.stage, members]);
  const groupNames = useMemo(() => (groups.value?.rows ?? []).map(([group, kind, size, ranks]) => [group, `${kindName(kind ?? "", t)} · ${size}: ${ranges(expand(ranks), 3)}`] as const), [groups.value, t]);
  const shares = useMemo(() => (asked.value ? readShares(asked.value.columns, cluster).filter((share) => chosen.has(share.rank.rank)) : []), [asked.value, cluster, chosen]);
  const bars = useMemo(() => inOrder(shares, cluster).map((share): Bar => ({ rank: share.rank.rank, up: PARTS.map((part) => share.parts[part]) })), [shares, cluster]);
  const byRank = useMemo(() => new Map(shares.map((share) => [share.rank.rank, share])), [shares]);
  const open = useCallback((rank: number) => go(runAddress(run, `cards/${rank}`)), [run]);
  const tip = useCallback((bar: Bar) => {
    const share = byRank.get(bar.rank);
    return {
      title: share ? fullName(share.rank, t) : String(bar.rank),
      lines: share ? [
        [t("time.step"), duration(share.step)], [t("time.own"), `${duration(share.own)} · ${signedPercent(share.excess)}`],
        ...PARTS.filter((part) => share.parts[part] > 0).map((part): [string, string] => [t(`part.${part}` as Key), `${duration(share.parts[part])} · ${percent(share.parts[part] / share.step)}`]),
      ] as [string, string][] : [],
    };
  }, [byRank, t]);
  const mean = meanParts(shares);
  return (
    <>
      <Title title={w("steps.title")} note={w("steps.note")} />
      <div class="controls">
        <StepPick /><HostPick /><StagePick />
        <Pick name="group" label={w("filter.group")} all={w("filter.all")} options={groupNames} />
      </div>
      {asked.problem && <Trouble problem={asked.problem} />}
      {asked.value && shares.length === 0 && <Empty title={t("time.empty")} text={t("time.empty.text")} />}
      {shares.length > 0 && (
        <Section id="parts" title={w("steps.chart")}>
          <RankBars bars={bars} colors={COLORS} marked={focus.ranks} tip={tip} label={w("steps.label", { n: bars.length })} height={240} onPick={open} />
          <PartLegend parts={mean.parts} total={mean.step} />
        </Section>
      )}
      <OwnTimes run={run} chosen={chosen} onPick={open} />
      <Section id="table" title={w("steps.table")} note={`${w("steps.table.note")} ${w("steps.table.parts")}`}>
        <ServerTable run={run} name="step-trace" filters={filters} sort="-excess" caption={w("steps.table")}
          render={{ rank: rankCell(run) }} marked={(row) => focus.ranks.has(Number(row["rank"]))} />
      </Section>
    </>
  );
}

/** Ranks × steps: a habit is a column, a bad step a row, a one-off a dot. */
function OwnTimes({ run, chosen, onPick }: { run: string; chosen: ReadonlySet<number>; onPick: (rank: number) => void }) {
  const w = useWords();
  const t = useText();
  const { cluster, focus } = useScene();
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/own-time`));
  const heat = useMemo(() => (asked.value ? heatOf(asked.value.columns, cluster, chosen) : null), [asked.value, cluster, chosen]);
  const marked = useMemo(() => new Set(heat ? heat.ranks.flatMap((rank, i) => (focus.ranks.has(rank) ? [i] : [])) : []), [heat, focus]);
  if (!heat || heat.steps.length < 2 || heat.ranks.length < 2) return null;
  return (
    <Section id="own" title={w("steps.own")} note={w("steps.own.note")}>
      <HeatMap values={heat.values} columns={heat.ranks.length} rows={heat.steps.length} boundaries={heat.boundaries}
        columnLabel={(column) => String(heat.ranks[column])} rowLabel={(row) => t("steps.tip", { n: heat.steps[row] })}
        marked={marked} label={w("steps.own.label")} onPick={(column) => onPick(heat.ranks[column])}
        tip={(column, row) => {
          const rank = cluster.byRank.get(heat.ranks[column]);
          const own = heat.own[row * heat.ranks.length + column];
          return {
            title: `${rank ? fullName(rank, t) : heat.ranks[column]} · ${t("steps.tip", { n: heat.steps[row] })}`,
            lines: [[t("time.own"), duration(own)], [t("time.excess"), signedPercent(heat.excess[row * heat.ranks.length + column])]],
          };
        }} />
      <div class="ramp cividis"><span>0</span><i /><span>{`≥ ${signedPercent(FULL_EXCESS)}`}</span><em>{w("steps.own.scale")}</em></div>
    </Section>
  );
}

interface Heat {
  ranks: number[];
  steps: number[];
  boundaries: number[];
  own: Float32Array;
  excess: Float32Array;
  values: Float32Array;
}

function heatOf(table: Columns, cluster: Cluster, chosen: ReadonlySet<number>): Heat {
  const [rank, step, own] = ["rank", "step", "own"].map((name) => table.num(name));
  const steps = [...new Set(Array.from(step))].sort((a, b) => a - b);
  const rows = new Map(steps.map((one, i) => [one, i]));
  const order = cluster.order.filter((one) => chosen.has(one.rank));
  const columns = new Map(order.map((one, i) => [one.rank, i]));
  const values = new Float32Array(order.length * steps.length).fill(NaN);
  for (let i = 0; i < table.length; i++) {
    const [column, row] = [columns.get(rank[i]), rows.get(step[i])];
    if (column !== undefined && row !== undefined) values[row * order.length + column] = own[i];
  }
  const excess = new Float32Array(values.length).fill(NaN);
  const stages = new Map<number | null, number[]>();
  for (const stage of new Set(order.map((one) => one.stage))) stages.set(stage, []);
  order.forEach((one, column) => stages.get(one.stage)!.push(column));
  for (let row = 0; row < steps.length; row++) {
    for (const members of stages.values()) {
      const usual = median(members.map((column) => values[row * order.length + column]).filter(Number.isFinite));
      for (const column of members) excess[row * order.length + column] = values[row * order.length + column] / usual - 1;
    }
  }
  const boundaries = order.flatMap((one, i) => (i === 0 || order[i - 1].hostIndex !== one.hostIndex ? [i] : []));
  return { ranks: order.map((one) => one.rank), steps, boundaries, own: values, excess, values: excess.map((value) => clamp(value / FULL_EXCESS, 0, 1)) };
}

function chosenRanks(cluster: Cluster, host: string | null | undefined, stage: string | null | undefined, group: string | undefined): ReadonlySet<number> {
  const members = group === undefined ? null : new Set(expand(group));
  return new Set(cluster.ranks
    .filter((rank) => (!host || rank.host === host) && (!stage || rank.stage === Number(stage)) && (!members || members.has(rank.rank)))
    .map((rank) => rank.rank));
}

/** "0,2,4": the server names all members of a group. */
const expand = (text: string): number[] => text.split(",").map((part) => Number(part.trim())).filter(Number.isFinite);

const inOrder = (shares: Share[], cluster: Cluster): Share[] =>
  [...shares].sort((a, b) => (cluster.place.get(a.rank.rank) ?? 0) - (cluster.place.get(b.rank.rank) ?? 0));
