// Memory and work of every card, by host; a click leads to the card.
import { useCallback, useMemo } from "preact/hooks";
import { ClusterMap } from "../charts/ClusterMap";
import { Ramp, type RampMark } from "../charts/Ramp";
import { Choice } from "../components/Choice";
import { Empty, Section } from "../components/Section";
import type { Rank } from "../api/cluster";
import { binaryBytes, count, percent } from "../i18n/numbers";
import { useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";
import { fullName } from "../i18n/rankNames";
import { address, useColumns } from "../api/client";
import { big } from "../components/tableCells";
import { HostPick, RankField, StagePick, Title } from "../components/Filters";
import { RankLink } from "../components/RankLink";
import { ServerTable } from "../components/ServerTable";
import { ProblemMessage } from "../components/ProblemMessage";
import { runAddress, useRouter, useSetting } from "../components/router";

type Metric = "flops" | "rate" | "utilisation";

export function ResourcesPage({ run }: { run: string }) {
  const t = useText();
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/resources`));
  const table = asked.value?.columns ?? null;
  const values = useMemo(() => {
    if (!table) return null;
    const names = ["peak", "capacity", "share", "flops", "flops_per_s", "utilisation"] as const;
    const rank = table.num("rank");
    const columns = names.map((name) => table.num(name));
    const basis = table.text("basis");
    return new Map(
      Array.from(rank, (one, i) => [
        one,
        { ...Object.fromEntries(names.map((name, n) => [name, columns[n][i]])), basis: basis[i] } as Value,
      ]),
    );
  }, [table]);
  return (
    <>
      <Title title={t("ui.web.resources.title")} />
      {asked.problem && <ProblemMessage problem={asked.problem} />}
      {values && <MemoryMap run={run} values={values} />}
      {values && <FlopsMap run={run} values={values} />}
    </>
  );
}

type Value = Record<"peak" | "capacity" | "share" | "flops" | "flops_per_s" | "utilisation", number> & {
  basis: string | null;
};
type Values = Map<number, Value>;

const NOBODY: ReadonlySet<number> = new Set();

/** Red only for who came here from a finding: the memory of a slow card is not a fault. */
function useAccused(): ReadonlySet<number> {
  const { focus } = useRunData();
  return useRouter().place.query.get("finding") ? focus.ranks : NOBODY;
}

function MemoryMap({ run, values }: { run: string; values: Values }) {
  const t = useText();
  const { go, place } = useRouter();
  const { cluster } = useRunData();
  const accused = useAccused();
  const all = [...values.values()];
  const known = all.filter((one) => Number.isFinite(one.peak));
  const filters = Object.fromEntries(["rank", "host", "stage"].map((name) => [name, place.query.get(name)]));
  const measured = known.some((one) => Number.isFinite(one.capacity));
  // Where no card tells its capacity, the fullest card is the scale.
  const most = measured ? 1 : known.reduce((high, one) => Math.max(high, one.peak), 0) || 1;
  const use = useCallback((one: Value) => (measured ? one.share : one.peak), [measured]);
  const show = (value: number): string => (measured ? percent(value) : binaryBytes(value));
  const fraction = useCallback(
    (rank: Rank) => {
      const one = values.get(rank.rank);
      return one && Number.isFinite(use(one)) ? use(one) / most : null;
    },
    [values, use, most],
  );
  return (
    <Section
      id="memory"
      title={t("ui.memory.title")}
      note={
        known.length
          ? [
              known.length < all.length &&
                t("ui.memory.some", {
                  n: known.length.toLocaleString("en-US"),
                  all: all.length.toLocaleString("en-US"),
                }),
              !measured && t("ui.memory.nocapacity"),
            ]
              .filter(Boolean)
              .join(" ")
          : undefined
      }
    >
      {known.length === 0 ? (
        <Empty title={t("ui.memory.empty")} text={t("ui.memory.empty.text")} />
      ) : (
        <>
          <ClusterMap
            cluster={cluster}
            fraction={fraction}
            color="compute"
            marked={accused}
            onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`, { tab: "memory" }))}
            tip={(rank) => {
              const one = values.get(rank.rank);
              return {
                title: fullName(rank, t),
                lines:
                  one && Number.isFinite(one.peak)
                    ? [
                        [t("ui.column.peak"), binaryBytes(one.peak)],
                        ...(Number.isFinite(one.capacity)
                          ? ([[t("ui.column.capacity"), binaryBytes(one.capacity)]] as [string, string][])
                          : []),
                        ...(Number.isFinite(one.share)
                          ? ([[t("ui.memory.use"), percent(one.share)]] as [string, string][])
                          : []),
                      ]
                    : [[t("ui.map.missing"), ""]],
              };
            }}
          />
          <Ramp
            color="compute"
            ends={["0", show(most)]}
            title={t(measured ? "ui.memory.use" : "ui.column.peak")}
            marks={marksOf(values, accused, { value: use, most, show, t })}
          >
            {known.length < all.length && <Missing />}
          </Ramp>
          <div class="controls">
            <RankField label={t("ui.column.ranks")} />
            <HostPick />
            <StagePick />
          </div>
          <ServerTable
            run={run}
            name="memory"
            filters={filters}
            sort="-peak"
            prefix="m"
            size={16}
            caption={t("ui.memory.title")}
            marked={(row) => accused.has(Number(row["rank"]))}
            render={{
              rank: (row) => <RankLink run={run} rank={Number(row["rank"])} tab="memory" />,
              basis: (row) => t(row["basis"] === "theoretical" ? "ui.web.basis.theoretical" : "ui.web.basis.measured"),
            }}
          />
        </>
      )}
    </Section>
  );
}

function FlopsMap({ run, values }: { run: string; values: Values }) {
  const t = useText();
  const { go, place } = useRouter();
  const { cluster } = useRunData();
  const accused = useAccused();
  const [metric, setMetric] = useSetting("work", "flops");
  const column =
    ({ flops: "flops", rate: "flops_per_s", utilisation: "utilisation" } as const)[metric as Metric] ?? "flops";
  const all = [...values.values()];
  const known = all.filter((one) => Number.isFinite(one.flops) || Number.isFinite(one.flops_per_s));
  const metrics = (["flops", "rate", "utilisation"] as const).filter(
    (one) => one !== "utilisation" || known.some((value) => Number.isFinite(value.utilisation)),
  );
  const most = known.reduce((high, one) => Math.max(high, one[column] || 0), 0) || 1;
  const fraction = useCallback(
    (rank: Rank) => {
      const value = values.get(rank.rank)?.[column];
      return value !== undefined && Number.isFinite(value) ? value / most : null;
    },
    [values, column, most],
  );
  const show = (value: number): string =>
    column === "utilisation" ? percent(value) : `${big(value)}${column === "flops" ? "FLOP" : "FLOP/s"}`;
  const filters = Object.fromEntries(["rank", "host", "stage"].map((name) => [name, place.query.get(name)]));
  return (
    <Section
      id="flops"
      title={t("ui.web.flops.title")}
      note={known.length ? workNote(known, all.length, t) : undefined}
    >
      {known.length === 0 ? (
        <Empty title={t("ui.web.flops.empty")} text={t("ui.web.flops.empty.text")} />
      ) : (
        <>
          <Choice
            label={t("ui.web.flops.title")}
            value={metric as Metric}
            onChange={setMetric}
            options={metrics.map((value) => ({ value, label: t(`ui.web.flops.${value}`) }))}
          />
          <ClusterMap
            cluster={cluster}
            fraction={fraction}
            color="compute"
            marked={accused}
            onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`, { tab: "operators" }))}
            tip={(rank) => {
              const one = values.get(rank.rank);
              return {
                title: fullName(rank, t),
                lines:
                  one && Number.isFinite(one.flops)
                    ? [
                        [t("ui.web.flops.flops"), `${big(one.flops)}FLOP`],
                        [t("ui.web.flops.rate"), `${big(one.flops_per_s)}FLOP/s`],
                        ...(Number.isFinite(one.utilisation)
                          ? [[t("ui.column.utilisation"), percent(one.utilisation)] as [string, string]]
                          : []),
                      ]
                    : [[t("ui.map.missing"), ""]],
              };
            }}
          />
          <Ramp
            color="compute"
            ends={["0", show(most)]}
            title={t(`ui.web.flops.${metric as Metric}`)}
            marks={marksOf(values, accused, { value: (one) => one[column], most, show, t })}
          >
            {known.length < all.length && <Missing />}
          </Ramp>
          <ServerTable
            run={run}
            name="flops"
            filters={filters}
            sort="-flops"
            prefix="f"
            size={16}
            caption={t("ui.web.flops.title")}
            marked={(row) => accused.has(Number(row["rank"]))}
            render={{
              rank: (row) => <RankLink run={run} rank={Number(row["rank"])} tab="operators" />,
              basis: (row) =>
                t(row["basis"] === "recorded" ? "ui.web.flops.basis.recorded" : "ui.web.flops.basis.counted"),
            }}
          />
        </>
      )}
    </Section>
  );
}

interface Scale {
  value: (one: Value) => number;
  most: number;
  show: (value: number) => string;
  t: Text;
}

/** Of the ranks the finding names, the one with the largest value. */
function marksOf(values: Values, named: ReadonlySet<number>, { value, most, show, t }: Scale): RampMark[] {
  const known = [...named].filter((rank) => Number.isFinite(value(values.get(rank) ?? NOTHING)));
  const worst = known.sort((a, b) => value(values.get(b) ?? NOTHING) - value(values.get(a) ?? NOTHING))[0];
  if (worst === undefined) return [];
  const largest = value(values.get(worst) ?? NOTHING);
  return [{ at: largest / most, label: `${t("ui.name.rank", { n: worst })} ${show(largest)}` }];
}

const NOTHING: Value = {
  peak: NaN,
  capacity: NaN,
  share: NaN,
  flops: NaN,
  flops_per_s: NaN,
  utilisation: NaN,
  basis: null,
};

function Missing() {
  return (
    <span class="none missing">
      <b aria-hidden="true" />
      {useText()("ui.map.missing")}
    </span>
  );
}

/** Where the figures come from: a reader of a lower bound must know it. */
function workNote(known: Value[], all: number, t: Text): string {
  const recorded = known.filter((one) => one.basis === "recorded").length;
  const counted = known.length - recorded;
  const source =
    counted === 0
      ? t("ui.web.flops.note")
      : recorded === 0
        ? t("ui.web.flops.note.counted")
        : t("ui.web.flops.note.mixed", { recorded: count(recorded), counted: count(counted) });
  const some = known.length < all ? t("ui.web.flops.some", { n: count(known.length), all: count(all) }) : "";
  const peak = known.some((one) => Number.isFinite(one.utilisation)) ? "" : t("ui.web.flops.note.peak");
  return [some, source, peak].filter(Boolean).join(" ");
}
