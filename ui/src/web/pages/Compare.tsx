// Two runs side by side: what became faster or slower beyond noise, and what became of the findings.
import { useEffect, useState } from "preact/hooks";
import { Choice } from "../../components/Choice";
import { Empty, Section } from "../../components/Section";
import { count, fixed, percent, signedPercent, UNKNOWN } from "../../format/numbers";
import { address, post, Problem, useJson, usePolling, type RunInfo, type RunList } from "../api";
import { Title } from "../parts/Filters";
import { Link } from "../parts/Link";
import { ProgressBar } from "../parts/ProgressBar";
import { rankCell } from "../parts/RankLink";
import { ServerTable } from "../parts/ServerTable";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter, useSetting } from "../router";
import { isWebKey, useLanguage, useWords, type WebKey, type Words } from "../words";

interface Change {
  name: string;
  unit: string;
  before: number;
  after: number;
  noise: number;
  verdict: "faster" | "slower" | "same" | "more" | "less";
  percent: number | null;
}

interface Compared {
  same_ranks: boolean;
  step: Change;
  tables: Record<Part, { rows: number; changed: number }>;
  findings: { status: "gone" | "still" | "new" | "unseen"; id: string; title: string; gain_percent_before: number | null; gain_percent_after: number | null }[];
}

const PARTS = ["phases", "ranks", "operators", "transports", "links"] as const;
type Part = (typeof PARTS)[number];

export function Compare() {
  const w = useWords();
  const language = useLanguage();
  const { place, set } = useRouter();
  const [before, after] = [place.query.get("before") ?? "", place.query.get("after") ?? ""];
  const list = useJson<RunList>(address("runs", { limit: 500, lang: language }));
  const states = useOpening([before, after].filter(Boolean));
  const ready = Boolean(before && after) && states.every((one) => one?.state.phase === "ready");
  const asked = useJson<Compared>(ready ? address("compare", { before, after, lang: language }) : null);
  const failed = states.find((one) => one?.state.phase === "failed");
  return (
    <>
      <Title title={w("compare.title")} note={w("compare.note")} />
      <div class="controls">
        <RunPick label={w("compare.before")} name="before" value={before} runs={list.value?.runs ?? []} />
        <button type="button" onClick={() => set({ before: after, after: before })} disabled={!before || !after} aria-label={w("compare.swap")} title={w("compare.swap")}>⇄</button>
        <RunPick label={w("compare.after")} name="after" value={after} runs={list.value?.runs ?? []} />
      </div>
      {list.problem && <Trouble problem={list.problem} />}
      {(!before || !after) && <Empty title={w("compare.pick")} text={w("compare.pick.text")} />}
      {failed && <Empty title={w("run.failed")} text={`${failed.name}: ${failed.state.message ?? ""}`} />}
      {states.filter((one): one is RunInfo => one !== null && !["ready", "failed"].includes(one.state.phase)).map((one) => (
        <p key={one.id} class="opening-one">{one.name} <ProgressBar state={one.state} /></p>
      ))}
      {asked.problem && <Trouble problem={asked.problem} />}
      {ready && asked.value && <Result result={asked.value} before={before} after={after} />}
    </>
  );
}

/** Opens runs and follows them until they are ready. */
function useOpening(runs: string[]): (RunInfo | null)[] {
  const [states, setStates] = useState<Record<string, RunInfo>>({});
  const language = useLanguage();
  const ask = async (): Promise<void> => {
    const open = runs.filter((run) => !["ready", "failed"].includes(states[run]?.state.phase ?? ""));
    await Promise.all(open.map((run) =>
      post<RunInfo>(address(`runs/${encodeURIComponent(run)}/open`, { lang: language })).then(
        (value) => setStates((old) => ({ ...old, [run]: value })),
        (error: unknown) => {
          if (!(error instanceof Problem)) return;
          const state = { phase: "failed", done: 0, total: 0, message: error.message, hint: error.hint } as const;
          setStates((old) => ({ ...old, [run]: { id: run, name: run, state } as unknown as RunInfo }));
        },
      )));
  };
  useEffect(() => { void ask(); }, [runs.join(" ")]);
  usePolling(ask, 500, runs.some((run) => !["ready", "failed"].includes(states[run]?.state.phase ?? "")));
  return runs.map((run) => states[run] ?? null);
}

function RunPick({ label, name, value, runs }: { label: string; name: string; value: string; runs: RunInfo[] }) {
  const w = useWords();
  const { set } = useRouter();
  return (
    <label class="pick"><span>{label}</span>
      <select name={name} value={value} onChange={(event) => set({ [name]: event.currentTarget.value })}>
        <option value="">{w("compare.choose")}</option>
        {runs.map((run) => <option key={run.id} value={run.id}>{run.name}</option>)}
      </select>
    </label>
  );
}

function Result({ result, before, after }: { result: Compared; before: string; after: string }) {
  const w = useWords();
  const { step } = result;
  const [show, setShow] = useSetting("show", "changed");
  const others = PARTS.filter((part) => part !== "phases" && result.tables[part].rows > 0);
  return (
    <>
      <div class="headline compared">
        <dl class="speed">
          <div><dd>{fixed(step.before, 1)} ms</dd><dt><Link to={runAddress(before)}>{w("compare.before")}</Link></dt></div>
          <span aria-hidden="true">→</span>
          <div><dd>{fixed(step.after, 1)} ms</dd><dt><Link to={runAddress(after)}>{w("compare.after")}</Link> · <b>{w(`verdict.${step.verdict}`)}</b>{step.verdict !== "same" && ` ${signedPercent((step.percent ?? 0) / 100)}`}</dt></div>
        </dl>
      </div>
      <Section id="findings" title={w("compare.findings")}>
        {result.findings.length === 0 && <p class="note">{w("compare.nofindings")}</p>}
        <ul class="fates">
          {result.findings.map((fate, i) => <li key={i} class={fate.status}><b>{w(`fate.${fate.status}`)}</b> {fate.title}</li>)}
        </ul>
      </Section>
      {!result.same_ranks && <p class="note">{w("compare.otherranks")}</p>}
      <Changes part="phases" title={w("compare.phases")} before={before} after={after} all rows={result.tables.phases.rows} />
      {others.length > 0 && (
        <div class="controls">
          <Choice label={w("compare.show")} value={show} onChange={setShow} options={[{ value: "changed", label: w("compare.changed") }, { value: "all", label: w("compare.all") }]} />
        </div>
      )}
      {others.map((part) => (
        <Changes key={part} part={part} title={w(`compare.${part}`)} note={result.tables[part].changed === 0 && show !== "all" ? undefined : w("compare.real", { n: count(result.tables[part].changed), all: count(result.tables[part].rows) })}
          before={before} after={after} all={show === "all"} rows={result.tables[part].rows} />
      ))}
    </>
  );
}

interface ChangesProps {
  part: Part;
  title: string;
  note?: string | undefined;
  before: string;
  after: string;
  /** Also what changed no more than noise does. */
  all: boolean;
  rows: number;
}

function Changes({ part, title, note, before, after, all, rows }: ChangesProps) {
  const w = useWords();
  return (
    <Section id={part} title={title} note={note}>
      <ServerTable name={part} path={`compare/tables/${part}`} filters={{ before, after, verdict: all ? null : "changed" }} sort="place" hidden={["place"]}
        prefix={part} size={12} caption={title} empty={w("compare.nothing", { n: count(rows) })}
        render={{
          ...(part === "phases" && { name: (row) => named(String(row["name"]), w) }),
          ...(part === "ranks" && { rank: rankCell(after) }),
          noise: (row) => (typeof row["noise"] === "number" ? `± ${percent(row["noise"], 1)}` : UNKNOWN),
          verdict: (row) => <span class={`verdict ${row["verdict"]}`}>{isVerdict(row["verdict"]) ? w(`verdict.${row["verdict"]}`) : row["verdict"]}</span>,
        }} />
    </Section>
  );
}

const isVerdict = (value: unknown): value is Change["verdict"] => typeof value === "string" && isWebKey(`verdict.${value}`);

function named(name: string, w: Words): string {
  const key = `phase.${name}`;
  return isWebKey(key) ? w(key as WebKey) : name;
}
