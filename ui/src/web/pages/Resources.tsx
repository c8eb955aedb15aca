// Memory and work of every card, by host; a click leads to the card.
import { useCallback, useMemo } from "preact/hooks";
import { ClusterMap } from "../../charts/ClusterMap";
import { Choice } from "../../components/Choice";
import { Empty, Section } from "../../components/Section";
import type { Rank } from "../../data/cluster";
import { bytes, count, percent } from "../../format/numbers";
import { useText } from "../../i18n/text";
import { useScene } from "../../views/context";
import { fullName } from "../../views/names";
import { address, useColumns } from "../api";
import { big } from "../parts/cells";
import { HostPick, StagePick, Title } from "../parts/Filters";
import { RankLink } from "../parts/RankLink";
import { ServerTable } from "../parts/ServerTable";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter, useSetting } from "../router";
import { useWords, type Words } from "../words";

type Metric = "flops" | "rate" | "utilisation";

export function Resources({ run }: { run: string }) {
  const w = useWords();
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/resources`));
  const table = asked.value?.columns ?? null;
  const values = useMemo(() => {
    if (!table) return null;
    const names = ["peak", "capacity", "flops", "flops_per_s", "utilisation"] as const;
    const rank = table.num("rank");
    const columns = names.map((name) => table.num(name));
    const basis = table.text("basis");
    return new Map(Array.from(rank, (one, i) => [one, { ...Object.fromEntries(names.map((name, n) => [name, columns[n][i]])), basis: basis[i] } as Value]));
  }, [table]);
  return (
    <>
      <Title title={w("resources.title")} />
      {asked.problem && <Trouble problem={asked.problem} />}
      {values && <MemoryMap run={run} values={values} />}
      {values && <FlopsMap run={run} values={values} />}
    </>
  );
}

type Value = Record<"peak" | "capacity" | "flops" | "flops_per_s" | "utilisation", number> & { basis: string | null };
type Values = Map<number, Value>;

const NOBODY: ReadonlySet<number> = new Set();

/** Red only for who came here from a finding: a slow card's memory is nobody's fault. */
function useAccused(): ReadonlySet<number> {
  const { focus } = useScene();
  return useRouter().place.query.get("finding") ? focus.ranks : NOBODY;
}

function MemoryMap({ run, values }: { run: string; values: Values }) {
  const w = useWords();
  const t = useText();
  const { go, place } = useRouter();
  const { cluster } = useScene();
  const accused = useAccused();
  const all = [...values.values()];
  const known = all.filter((one) => Number.isFinite(one.peak));
  const most = known.reduce((high, one) => Math.max(high, Number.isFinite(one.capacity) ? one.capacity : one.peak), 0);
  const fraction = useCallback((rank: Rank) => {
    const one = values.get(rank.rank);
    return one && Number.isFinite(one.peak) ? one.peak / (Number.isFinite(one.capacity) ? one.capacity : most) : null;
  }, [values, most]);
  const filters = Object.fromEntries(["host", "stage"].map((name) => [name, place.query.get(name)]));
  const measured = known.some((one) => Number.isFinite(one.capacity));
  return (
    <Section id="memory" title={t("memory.title")} note={known.length ? [known.length < all.length && t("memory.some", { n: known.length.toLocaleString("en-US"), all: all.length.toLocaleString("en-US") }), !measured && t("memory.nocapacity")].filter(Boolean).join(" ") : undefined}>
      {known.length === 0 ? <Empty title={t("memory.empty")} text={t("memory.empty.text")} /> : (
        <>
          <ClusterMap cluster={cluster} fraction={fraction} color="compute" marked={accused} onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`, { tab: "memory" }))}
            tip={(rank) => {
              const one = values.get(rank.rank);
              return { title: fullName(rank, t), lines: one && Number.isFinite(one.peak)
                ? [[t("memory.peak"), bytes(one.peak)], ...(Number.isFinite(one.capacity) ? [[t("memory.capacity"), bytes(one.capacity)], [t("memory.use"), percent(one.peak / one.capacity)]] as [string, string][] : [])]
                : [[t("map.missing"), ""]] };
            }} />
          <div class="ramp"><span>0</span><i /><span>{measured ? percent(1) : bytes(most)}</span><em>{measured ? t("memory.use") : t("memory.peak")}</em>{known.length < all.length && <Missing />}</div>
          <div class="controls"><HostPick /><StagePick /></div>
          <ServerTable run={run} name="memory" filters={filters} sort="-peak" prefix="m" size={16} caption={t("memory.title")} marked={(row) => accused.has(Number(row["rank"]))}
            render={{ rank: (row) => <RankLink run={run} rank={Number(row["rank"])} tab="memory" />, basis: (row) => w(row["basis"] === "theoretical" ? "basis.theoretical" : "basis.measured") }} />
        </>
      )}
    </Section>
  );
}

function FlopsMap({ run, values }: { run: string; values: Values }) {
  const w = useWords();
  const t = useText();
  const { go, place } = useRouter();
  const { cluster } = useScene();
  const accused = useAccused();
  const [metric, setMetric] = useSetting("work", "flops");
  const column = ({ flops: "flops", rate: "flops_per_s", utilisation: "utilisation" } as const)[metric as Metric] ?? "flops";
  const all = [...values.values()];
  const known = all.filter((one) => Number.isFinite(one.flops) || Number.isFinite(one.flops_per_s));
  const metrics = (["flops", "rate", "utilisation"] as const).filter((one) => one !== "utilisation" || known.some((value) => Number.isFinite(value.utilisation)));
  const most = known.reduce((high, one) => Math.max(high, one[column] || 0), 0) || 1;
  const fraction = useCallback((rank: Rank) => {
    const value = values.get(rank.rank)?.[column];
    return value !== undefined && Number.isFinite(value) ? value / most : null;
  }, [values, column, most]);
  const show = (value: number): string => (column === "utilisation" ? percent(value) : `${big(value)}${column === "flops" ? "FLOP" : "FLOP/s"}`);
  const filters = Object.fromEntries(["host", "stage"].map((name) => [name, place.query.get(name)]));
  return (
    <Section id="flops" title={w("flops.title")} note={known.length ? workNote(known, all.length, w) : undefined}>
      {known.length === 0 ? <Empty title={w("flops.empty")} text={w("flops.empty.text")} /> : (
        <>
          <Choice label={w("flops.title")} value={metric as Metric} onChange={setMetric}
            options={metrics.map((value) => ({ value, label: w(`flops.${value}`) }))} />
          <ClusterMap cluster={cluster} fraction={fraction} color="data" marked={accused} onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`, { tab: "operators" }))}
            tip={(rank) => {
              const one = values.get(rank.rank);
              return { title: fullName(rank, t), lines: one && Number.isFinite(one.flops)
                ? [[w("flops.flops"), `${big(one.flops)}FLOP`], [w("flops.rate"), `${big(one.flops_per_s)}FLOP/s`], ...(Number.isFinite(one.utilisation) ? [[w("flops.utilisation"), percent(one.utilisation)] as [string, string]] : [])]
                : [[t("map.missing"), ""]] };
            }} />
          <div class="ramp work"><span>0</span><i /><span>{show(most)}</span><em>{w(`flops.${metric as Metric}`)}</em>{known.length < all.length && <Missing />}</div>
          <ServerTable run={run} name="flops" filters={filters} sort="-flops" prefix="f" size={16} caption={w("flops.title")} marked={(row) => accused.has(Number(row["rank"]))}
            render={{ rank: (row) => <RankLink run={run} rank={Number(row["rank"])} tab="operators" />, basis: (row) => w(row["basis"] === "recorded" ? "flops.basis.recorded" : "flops.basis.counted") }} />
        </>
      )}
    </Section>
  );
}

function Missing() {
  return <span class="none missing"><b aria-hidden="true" />{useText()("map.missing")}</span>;
}

/** Where the figures come from: whoever reads a lower bound must know it. */
function workNote(known: Value[], all: number, w: Words): string {
  const recorded = known.filter((one) => one.basis === "recorded").length;
  const counted = known.length - recorded;
  const source = counted === 0 ? w("flops.note") : recorded === 0 ? w("flops.note.counted") : w("flops.note.mixed", { recorded: count(recorded), counted: count(counted) });
  const some = known.length < all ? w("flops.some", { n: count(known.length), all: count(all) }) : "";
  const peak = known.some((one) => Number.isFinite(one.utilisation)) ? "" : w("flops.note.peak");
  return [some, source, peak].filter(Boolean).join(" ");
}
