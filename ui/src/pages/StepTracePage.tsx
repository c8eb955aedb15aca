// Every rank's step: where its time goes, how it differs from its peers, step after step.
import { useCallback, useMemo } from "preact/hooks";
import { HeatMap } from "../charts/HeatMap";
import { Ramp, type RampMark } from "../charts/Ramp";
import { RankBars, type Bar } from "../charts/RankBars";
import { clamp } from "../charts/scale";
import { Empty, Section } from "../components/Section";
import { PartLegend } from "../components/StackedBar";
import { meanStepOf, PARTS, hiddenParts, readShares, type Cluster, type Share } from "../api/cluster";
import type { Columns } from "../api/columns";
import { duration, percent, ranges, signedPercent } from "../i18n/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { kindName } from "../sections/CollectiveTable";
import { useRunData } from "../api/runData";
import { fullName } from "../i18n/rankNames";
import { address, useColumns, useJson } from "../api/client";
import { readRankList, unreadableFilter } from "../api/rankList";
import { HostPick, Pick, RankField, StagePick, StepPick, Title } from "../components/Filters";
import { rankCell } from "../components/RankLink";
import { ServerTable } from "../components/ServerTable";
import { ProblemMessage } from "../components/ProblemMessage";
import { runAddress, useRouter } from "../components/router";

const COLORS = PARTS.map((part) => part as string);
/** Self time this far above its peers has the brightest colour; less must not be stretched over the scale. */
const FULL_EXCESS = 0.25;

export function StepTracePage({ run }: { run: string }) {
  const t = useText();
  const { place, go } = useRouter();
  const { cluster, focus } = useRunData();
  const filters = Object.fromEntries(
    ["step", "rank", "host", "stage", "group"].map((name) => [name, place.query.get(name)]),
  );
  const path = `runs/${encodeURIComponent(run)}`;
  const asked = useColumns(unreadableFilter(filters) === null ? address(`${path}/charts/breakdown`, filters) : null);
  const groups = useJson<{ rows: [string, string, number, string][] }>(
    address(`${path}/tables/groups`, { limit: 500 }),
  );
  const members = useMemo(
    () => (filters.group ? groups.value?.rows.find(([name]) => name === filters.group)?.[3] : undefined),
    [filters.group, groups.value],
  );
  const chosen = useMemo(
    () => chosenRanks(cluster, filters, members),
    [cluster, filters.rank, filters.host, filters.stage, members],
  );
  const groupNames = useMemo(
    () =>
      (groups.value?.rows ?? []).map(
        ([group, kind, size, ranks]) =>
          [group, `${kindName(kind ?? "", t)} · ${size}: ${ranges(expand(ranks), 3)}`] as const,
      ),
    [groups.value, t],
  );
  const shares = useMemo(() => (asked.value ? readShares(asked.value.columns, cluster) : []), [asked.value, cluster]);
  const bars = useMemo(
    () =>
      inOrder(shares, cluster).map((share): Bar => ({
        rank: share.rank.rank,
        up: PARTS.map((part) => share.parts[part]),
      })),
    [shares, cluster],
  );
  const byRank = useMemo(() => new Map(shares.map((share) => [share.rank.rank, share])), [shares]);
  const open = useCallback((rank: number) => go(runAddress(run, `cards/${rank}`)), [run]);
  const tip = useCallback(
    (bar: Bar) => {
      const share = byRank.get(bar.rank);
      return {
        title: share ? fullName(share.rank, t) : String(bar.rank),
        lines: share
          ? ([
              [t("ui.column.duration"), duration(share.duration)],
              [t("ui.column.self_time"), `${duration(share.selfTime)} · ${signedPercent(share.excess)}`],
              ...PARTS.filter((part) => share.parts[part] > 0).map((part): [string, string] => [
                t(`ui.part.${part}` as Key),
                `${duration(share.parts[part])} · ${percent(share.parts[part] / share.duration)}`,
              ]),
            ] as [string, string][])
          : [],
      };
    },
    [byRank, t],
  );
  const mean = asked.value ? meanStepOf(asked.value.about) : null;
  return (
    <>
      <Title title={t("ui.web.steps.title")} note={t("ui.web.steps.note")} />
      <div class="controls">
        <StepPick />
        <RankField label={t("ui.column.ranks")} />
        <HostPick />
        <StagePick />
        <Pick name="group" label={t("ui.column.group")} all={t("ui.filter.all")} options={groupNames} />
      </div>
      {asked.problem && <ProblemMessage problem={asked.problem} />}
      {asked.value && shares.length === 0 && <Empty title={t("ui.time.empty")} text={t("ui.time.empty.text")} />}
      {shares.length > 0 && (
        <Section id="parts" title={t("ui.web.steps.chart")}>
          <RankBars
            bars={bars}
            colors={COLORS}
            marked={focus.ranks}
            tip={tip}
            label={t("ui.web.steps.label", { n: bars.length })}
            height={240}
            onPick={open}
          />
          {mean && <PartLegend parts={mean.parts} total={mean.duration} />}
        </Section>
      )}
      <SelfTimes run={run} chosen={chosen} onPick={open} />
      <Section
        id="table"
        title={t("ui.web.steps.table")}
        note={`${t("ui.web.steps.table.note")} ${t("ui.web.steps.table.parts")}`}
      >
        <ServerTable
          run={run}
          name="step-trace"
          filters={filters}
          sort="-excess"
          caption={t("ui.web.steps.table")}
          hidden={hiddenParts(mean?.parts)}
          render={{ rank: rankCell(run) }}
          marked={(row) => focus.ranks.has(Number(row["rank"]))}
        />
      </Section>
    </>
  );
}

/** Ranks × steps: a persistent excess is a column, a bad step a row, a one-off a dot. */
function SelfTimes({
  run,
  chosen,
  onPick,
}: {
  run: string;
  chosen: ReadonlySet<number>;
  onPick: (rank: number) => void;
}) {
  const t = useText();
  const { cluster, focus } = useRunData();
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/self-time`));
  const heat = useMemo(
    () => (asked.value ? heatMapOf(asked.value.columns, cluster, chosen) : null),
    [asked.value, cluster, chosen],
  );
  const marked = useMemo(
    () => new Set(heat ? heat.ranks.flatMap((rank, i) => (focus.ranks.has(rank) ? [i] : [])) : []),
    [heat, focus],
  );
  if (!heat || heat.steps.length < 2 || heat.ranks.length < 2) return null;
  return (
    <Section id="self-time" title={t("ui.web.steps.self_time")} note={t("ui.web.steps.self_time.note")}>
      <HeatMap
        values={heat.values}
        columns={heat.ranks.length}
        rows={heat.steps.length}
        boundaries={heat.boundaries}
        columnLabel={(column) => String(heat.ranks[column])}
        rowLabel={(row) => t("ui.steps.tip", { n: heat.steps[row] })}
        marked={marked}
        label={t("ui.web.steps.self_time.label")}
        onPick={(column) => onPick(heat.ranks[column])}
        tip={(column, row) => {
          const rank = cluster.byRank.get(heat.ranks[column]);
          const at = row * heat.ranks.length + column;
          return {
            title: `${rank ? fullName(rank, t) : heat.ranks[column]} · ${t("ui.steps.tip", { n: heat.steps[row] })}`,
            lines: [
              [t("ui.column.self_time"), duration(heat.selfTime[at])],
              [t("ui.column.excess"), signedPercent(heat.excess[at])],
            ],
          };
        }}
      />
      <Ramp
        color="compute"
        ends={["0", `≥ ${signedPercent(FULL_EXCESS)}`]}
        title={t("ui.web.steps.self_time.scale")}
        marks={marksOf(heat, marked, t)}
      />
    </Section>
  );
}

/** The worst cell of what the finding names. */
function marksOf(heat: Heat, marked: ReadonlySet<number>, t: Text): RampMark[] {
  let worst = -1;
  heat.excess.forEach((value, at) => {
    if (marked.has(at % heat.ranks.length) && (worst < 0 || value > heat.excess[worst])) worst = at;
  });
  if (worst < 0 || !Number.isFinite(heat.excess[worst])) return [];
  const rank = t("ui.name.rank", { n: heat.ranks[worst % heat.ranks.length] });
  return [{ at: heat.values[worst], label: `${rank} ${signedPercent(heat.excess[worst])}` }];
}

interface Heat {
  ranks: number[];
  steps: number[];
  boundaries: number[];
  /** Row after row, as the server gives them. */
  selfTime: Float32Array;
  excess: Float32Array;
  /** 0..1 on the colour scale. */
  values: Float32Array;
}

function heatMapOf(table: Columns, cluster: Cluster, chosen: ReadonlySet<number>): Heat {
  const [rank, step, selfTime, excess] = ["rank", "step", "self_time", "excess"].map((name) => table.num(name));
  const steps = [...new Set(Array.from(step))].sort((a, b) => a - b);
  const rows = new Map(steps.map((one, i) => [one, i]));
  const order = cluster.order.filter((one) => chosen.has(one.rank));
  const columns = new Map(order.map((one, i) => [one.rank, i]));
  const cells = (): Float32Array => new Float32Array(order.length * steps.length).fill(NaN);
  const heat = { selfTime: cells(), excess: cells() };
  for (let i = 0; i < table.length; i++) {
    const [column, row] = [columns.get(rank[i]), rows.get(step[i])];
    if (column === undefined || row === undefined) continue;
    heat.selfTime[row * order.length + column] = selfTime[i];
    heat.excess[row * order.length + column] = excess[i];
  }
  return {
    ...heat,
    ranks: order.map((one) => one.rank),
    steps,
    boundaries: order.flatMap((one, i) => (i === 0 || order[i - 1].hostIndex !== one.hostIndex ? [i] : [])),
    values: heat.excess.map((value) => clamp(value / FULL_EXCESS, 0, 1)),
  };
}

function chosenRanks(
  cluster: Cluster,
  { rank, host, stage }: Record<string, string | null>,
  group: string | undefined,
): ReadonlySet<number> {
  const wanted = rank ? new Set(readRankList(rank)) : null;
  const members = group === undefined ? null : new Set(expand(group));
  return new Set(
    cluster.ranks
      .filter(
        (one) =>
          (!wanted || wanted.has(one.rank)) &&
          (!host || one.host === host) &&
          (!stage || one.stage === Number(stage)) &&
          (!members || members.has(one.rank)),
      )
      .map((one) => one.rank),
  );
}

/** "0,2,4": the server names all members of a group. */
const expand = (text: string): number[] =>
  text
    .split(",")
    .map((part) => Number(part.trim()))
    .filter(Number.isFinite);

const inOrder = (shares: Share[], cluster: Cluster): Share[] =>
  [...shares].sort((a, b) => (cluster.place.get(a.rank.rank) ?? 0) - (cluster.place.get(b.rank.rank) ?? 0));
