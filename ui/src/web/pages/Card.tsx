// One card: what it did, compared with its peers.
import { useMemo } from "preact/hooks";
import { Curve, type Series } from "../../charts/Curve";
import { Choice } from "../../components/Choice";
import { Empty, Section } from "../../components/Section";
import { PartLegend, StackedBar } from "../../components/StackedBar";
import type { Columns } from "../../data/columns";
import { linkKey } from "../../data/focus";
import { bytes, count, duration, fixed, percent, ranges, signedPercent } from "../../format/numbers";
import { useText } from "../../i18n/text";
import { kindName } from "../../views/Collectives";
import { useScene } from "../../views/context";
import { fullName } from "../../views/names";
import { address, useColumns, useJson } from "../api";
import { Tabs, TextField } from "../parts/Filters";
import { Link } from "../parts/Link";
import { rankCell } from "../parts/RankLink";
import { ServerTable } from "../parts/ServerTable";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter, useSetting } from "../router";
import { useLanguage, useWords } from "../words";

interface CardInfo {
  rank: number;
  host: string | null;
  path: string | null;
  note: string | null;
  groups: { group: string; kind: string | null; members: number; ranks: number[] }[];
  findings: { number: number; severity: string; title: string; gain_percent: number }[];
  has: Record<string, number>;
}

const TABS = ["steps", "operators", "communication", "input", "host", "memory"] as const;

export function Card({ run, rank }: { run: string; rank: number }) {
  const w = useWords();
  const t = useText();
  const language = useLanguage();
  const { cluster, shares } = useScene();
  const [tab] = useSetting("tab", "steps");
  const asked = useJson<CardInfo>(address(`runs/${encodeURIComponent(run)}/cards/${rank}`, { lang: language }));
  if (asked.problem) return <Trouble problem={asked.problem} />;
  const card = asked.value;
  const who = cluster.byRank.get(rank);
  const share = shares.find((one) => one.rank.rank === rank);
  const place = cluster.place.get(rank) ?? 0;
  const [before, after] = [cluster.order[place - 1], cluster.order[place + 1]];
  return (
    <>
      <div class="headline">
        <div>
          <h1>{who ? fullName(who, t) : t("Rank", { n: rank })}</h1>
          <p>
            {before && <Link to={runAddress(run, `cards/${before.rank}`, { tab })}>← {t("rank", { n: before.rank })}</Link>}{" "}
            {after && <Link to={runAddress(run, `cards/${after.rank}`, { tab })}>{t("rank", { n: after.rank })} →</Link>}{" · "}
            <Link to={runAddress(run, "timeline", { ranks: rank })}>{w("card.timeline")}</Link>
            {card?.path && card.path !== "." && <> · <code>{card.path}</code></>}
          </p>
          {card?.note && <p class="missing">{card.note}</p>}
        </div>
        {share && (
          <dl class="speed"><div><dd>{duration(share.own)}</dd><dt>{t("time.own")} · <b>{signedPercent(share.excess)}</b> {w("card.peers")}</dt></div></dl>
        )}
      </div>
      {card && card.findings.length > 0 && (
        <ul class={card.findings.some((finding) => finding.gain_percent > 0) ? "card-findings" : "card-findings quiet"}>
          {card.findings.map((finding) => (
            <li key={finding.number}><Link to={runAddress(run, "overview", { finding: finding.number })}>{t("finding.number", { n: finding.number })}</Link>{": "}{finding.title}
              {finding.gain_percent > 0 && <small> {w("runs.gain", { percent: percent(finding.gain_percent / 100, 1) })}</small>}</li>
          ))}
        </ul>
      )}
      {share && <div class="whole"><StackedBar parts={share.parts} scale={share.step} title={t("Rank", { n: rank })} /><PartLegend parts={share.parts} total={share.step} /></div>}
      <Tabs name="tab" label={w("card.parts")} options={TABS.map((one) => [one, w(`card.${one}`)] as const)} />
      {card && tab === "steps" && <StepsOf run={run} card={card} />}
      {card && tab === "operators" && <OperatorsOf run={run} card={card} />}
      {card && tab === "communication" && <CommunicationOf run={run} card={card} />}
      {card && tab === "input" && <InputOf run={run} card={card} />}
      {card && tab === "host" && <HostOf run={run} card={card} />}
      {card && tab === "memory" && <MemoryOf run={run} card={card} />}
    </>
  );
}

interface PartProps {
  run: string;
  card: CardInfo;
}

function StepsOf({ run, card }: PartProps) {
  const w = useWords();
  const t = useText();
  return (
    <>
      <Section id="steps" title={w("card.steps.title", { n: card.rank })} note={card.has["steps"] ? w("steps.table.parts") : undefined}>
        {card.has["steps"] ? <ServerTable run={run} name="card-steps" filters={{ rank: card.rank }} sort="step" caption={w("card.steps")} />
          : <Empty title={t("steps.empty")} text={t("time.empty.text")} />}
      </Section>
      {card.groups.some((group) => group.members > 1) && (
        <Section id="groups" title={w("card.groups")}>
          <div class="table few"><table>
            <thead><tr><th class="text" scope="col">{t("collectives.kind")}</th><th scope="col">{t("collectives.size")}</th><th class="text" scope="col">{w("col.ranks")}</th></tr></thead>
            <tbody>{card.groups.filter((group) => group.members > 1).map((group) => (
              <tr key={group.group}><td class="text">{kindName(group.kind ?? "", t)}</td><td>{count(group.members)}</td>
                <td class="text">{ranges(group.ranks, 8)}{group.ranks.length < group.members && " …"}</td></tr>
            ))}</tbody>
          </table></div>
        </Section>
      )}
    </>
  );
}

function OperatorsOf({ run, card }: PartProps) {
  const w = useWords();
  const { place } = useRouter();
  const [level, setLevel] = useSetting("level", "type");
  const nothing = !card.has["operator_times"];
  return (
    <>
      <Section id="operators" title={w("card.operators.title", { n: card.rank })} note={nothing ? undefined : w("card.operators.note")}>
        {nothing ? <Empty title={w("card.operators.empty")} text={w("card.operators.empty.text")} /> : (
          <>
            <div class="controls">
              <Choice label={w("card.level")} value={level} onChange={setLevel} options={[{ value: "type", label: w("card.bytype") }, { value: "name", label: w("card.byname") }]} />
              <TextField name="q" label={w("col.name")} />
            </div>
            <ServerTable run={run} name="operators" filters={{ rank: card.rank, level: level === "name" ? "name" : null, q: place.query.get("q") }} sort="-time" caption={w("card.operators")} hidden={level === "name" ? [] : ["name"]}
              marked={(row) => typeof row["excess"] === "number" && row["excess"] > 0.1 && Number(row["share"]) > 0.02} />
          </>
        )}
      </Section>
      <Section id="flops" title={w("card.flops")} note={card.has["flops_counted"] ? w("card.flops.counted") : undefined}>
        {card.has["flops"] ? <ServerTable run={run} name="operator-flops" filters={{ rank: card.rank, q: place.query.get("q") }} sort="-flops" prefix="f" size={15} caption={w("card.flops")} />
          : <Empty title={w("flops.empty")} text={w("flops.empty.text")} />}
      </Section>
    </>
  );
}

function CommunicationOf({ run, card }: PartProps) {
  const w = useWords();
  const t = useText();
  const { place } = useRouter();
  const { focus } = useScene();
  if (!card.has["collectives"]) return <Section id="communication" title={w("card.communication")}><Empty title={t("collectives.empty")} text={t("collectives.empty.text")} /></Section>;
  return (
    <>
      <Section id="communication" title={w("card.communication.title", { n: card.rank })}>
        <div class="controls"><TextField name="q" label={w("col.name")} /></div>
        <ServerTable run={run} name="card-collectives" filters={{ rank: card.rank, q: place.query.get("q") }} sort="-time" caption={w("card.communication")}
          render={{ kind: (row) => kindName(String(row["kind"] ?? ""), t) }} />
      </Section>
      <Section id="links" title={w("comm.linksof", { n: card.rank })}>
        <ServerTable run={run} name="links" filters={{ rank: card.rank }} sort="-time" prefix="l" size={15} caption={w("comm.links")} hidden={["scope"]} empty={w("comm.nolinks")}
          render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }} marked={(row) => focus.links.has(linkKey(Number(row["src"]), Number(row["dst"])))} />
      </Section>
    </>
  );
}

function InputOf({ run, card }: PartProps) {
  const w = useWords();
  const asked = useColumns(card.has["input_steps"] ? address(`runs/${encodeURIComponent(run)}/charts/input`, { rank: card.rank }) : null);
  const series = useMemo(() => (asked.value ? byName(asked.value.columns, "queue", "step", "size", ["data", "compute", "exposed"]) : []), [asked.value]);
  if (!card.has["input_pipeline"] && !card.has["input_steps"]) {
    return <Section id="input" title={w("card.input")}><Empty title={w("card.input.empty")} text={w("card.input.empty.text")} /></Section>;
  }
  return (
    <Section id="input" title={w("card.input.title", { n: card.rank })} note={w("card.input.note")}>
      {series.some((one) => one.x.length > 1) && (
        <>
          <h3>{w("card.queue")}</h3>
          <Curve series={series} format={(value) => fixed(value, Number.isInteger(value) ? 0 : 1)} formatX={(value) => fixed(value, 0)} label={w("card.queue")} height={170} whole />
          <Legend series={series} />
        </>
      )}
      {Boolean(card.has["input_pipeline"]) && <ServerTable run={run} name="input-pipeline" filters={{ rank: card.rank }} sort="op_id" caption={w("card.input")} />}
    </Section>
  );
}

function HostOf({ run, card }: PartProps) {
  const w = useWords();
  const { place } = useRouter();
  const asked = useColumns(card.has["counters"] ? address(`runs/${encodeURIComponent(run)}/charts/counters`, { rank: card.rank }) : null);
  const counters = useMemo(() => (asked.value ? byName(asked.value.columns, "series", "x", "value", ["compute"]) : []), [asked.value]);
  return (
    <>
      <Section id="host" title={w("card.host.title", { n: card.rank })}>
        {card.has["host_calls"] ? (
          <>
            <div class="controls"><TextField name="q" label={w("col.name")} /></div>
            <ServerTable run={run} name="host-calls" filters={{ rank: card.rank, q: place.query.get("q") }} sort="-time" caption={w("card.host")} />
          </>
        ) : <Empty title={w("card.host.empty")} text={w("card.host.empty.text")} />}
      </Section>
      {counters.map((one, i) => (
        <Section key={one.name} id={`counter-${i}`} title={w("card.counter", { name: unitOf(one.name) ? one.name.slice(0, one.name.lastIndexOf(" ")) : one.name })}>
          <Curve series={[one]} format={(value) => inUnit(value, one.name)} formatX={(value) => `${fixed(value, value < 10 ? 2 : 0)} s`} label={one.name} height={150} fromZero={false} />
        </Section>
      ))}
    </>
  );
}

function MemoryOf({ run, card }: PartProps) {
  const w = useWords();
  const t = useText();
  const { place } = useRouter();
  const asked = useColumns(card.has["memory"] ? address(`runs/${encodeURIComponent(run)}/charts/memory`, { rank: card.rank }) : null);
  const series = useMemo(() => (asked.value ? memorySeries(asked.value.columns, t("memory.peak"), w) : []), [asked.value, t, w]);
  if (!card.has["memory"]) return <Section id="memory" title={w("card.memory")}><Empty title={t("memory.empty")} text={t("memory.empty.text")} /></Section>;
  const planned = asked.value?.columns.text("kind").includes("node") ?? false;
  return (
    <Section id="memory" title={w("card.memory.title", { n: card.rank })} note={planned ? t("memory.theoretical") : undefined}>
      {series.length > 0 && (
        <>
          <Curve series={series} format={bytes} formatX={(value) => (planned ? fixed(value, 0) : `${fixed(value, value < 10 ? 2 : 0)} s`)} label={w("card.memory")} />
          <Legend series={series} />
        </>
      )}
      <h3>{w("card.allocations")}</h3>
      <div class="controls"><TextField name="q" label={w("col.name")} /></div>
      <ServerTable run={run} name="allocations" filters={{ rank: card.rank, q: place.query.get("q") }} sort="-size" size={15} caption={w("card.allocations")} empty={w("card.allocations.empty")} />
    </Section>
  );
}

function Legend({ series }: { series: Series[] }) {
  if (series.length < 2) return null;
  return <ul class="legend">{series.map((one) => <li key={one.name}><i class="line" style={{ borderTopColor: `var(--${one.color})`, borderTopStyle: one.dashed ? "dashed" : "solid" }} />{one.name}</li>)}</ul>;
}

function byName(table: Columns, name: string, x: string, y: string, colors: string[]): Series[] {
  const names = table.text(name);
  const [xs, ys] = [table.num(x), table.num(y)];
  const found = new Map<string, Series>();
  for (let i = 0; i < table.length; i++) {
    const key = names[i] ?? "";
    const one = found.get(key) ?? { name: key, color: colors[found.size % colors.length], x: [], y: [] };
    found.set(key, one);
    one.x.push(xs[i]);
    one.y.push(ys[i]);
  }
  return [...found.values()];
}

const SIZES: Record<string, number> = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9 };

/** Counters carry their unit at the end of their name: "AI Core Freq MHz", "APP/HBM KB"; null where there is none. */
function unitOf(name: string): string | null {
  const unit = name.includes(" ") ? name.split(" ").at(-1)! : "";
  return unit in SIZES || /^([MG]?Hz|W|%|°C|us|ms)$/.test(unit) ? unit : null;
}

function inUnit(value: number, name: string): string {
  const unit = unitOf(name);
  if (unit !== null && unit in SIZES) return bytes(value * SIZES[unit]);
  return unit === null ? fixed(value, 0) : `${fixed(value, 0)} ${unit}`;
}

const MEMORY_COLORS = ["compute", "exposed", "overlapped", "data"];

function memorySeries(table: Columns, peak: string, w: ReturnType<typeof useWords>): Series[] {
  const allocated = byName(table, "series", "x", "allocated", MEMORY_COLORS);
  const reserved = byName(table, "series", "x", "reserved", MEMORY_COLORS);
  return allocated.flatMap((one, i): Series[] => {
    const label = one.name ? `${one.name} ${w("card.allocated")}` : peak;
    const held = reserved[i];
    const more = held && held.y.some(Number.isFinite) ? [{ ...held, name: `${one.name} ${w("card.reserved")}`, dashed: true, steps: true }] : [];
    return [{ ...one, name: label, steps: true }, ...more].filter((some) => some.y.some(Number.isFinite));
  });
}
