// Two runs side by side: what became faster or slower beyond noise, and what became of the findings.
import { useEffect, useState } from "preact/hooks";
import { Empty, Section } from "../../components/Section";
import { fixed, signedPercent } from "../../format/numbers";
import { address, post, Problem, useJson, usePolling, type RunInfo, type RunList } from "../api";
import { Title } from "../parts/Filters";
import { Link } from "../parts/Link";
import { ProgressBar } from "../parts/ProgressBar";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter } from "../router";
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
  phases: Change[];
  ranks: Change[];
  operators: Change[];
  transports: Change[];
  links: Change[];
  counts: Record<string, number>;
  findings: { status: "gone" | "still" | "new" | "unseen"; id: string; title: string; gain_percent_before: number | null; gain_percent_after: number | null }[];
}

const TABLES = ["ranks", "operators", "transports", "links"] as const;
const MOST = 12;

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
  const ask = (): void => {
    for (const run of runs) {
      if (["ready", "failed"].includes(states[run]?.state.phase ?? "")) continue;
      post<RunInfo>(address(`runs/${encodeURIComponent(run)}/open`, { lang: language })).then(
        (value) => setStates((old) => ({ ...old, [run]: value })),
        (error: unknown) => {
          if (!(error instanceof Problem)) return;
          const state = { phase: "failed", done: 0, total: 0, message: error.message, hint: error.hint } as const;
          setStates((old) => ({ ...old, [run]: { id: run, name: run, state } as unknown as RunInfo }));
        },
      );
    }
  };
  useEffect(ask, [runs.join(" ")]);
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
      <Section id="phases" title={w("compare.phases")}><Changes rows={[step, ...result.phases]} most={Infinity} /></Section>
      {!result.same_ranks && <p class="note">{w("compare.otherranks")}</p>}
      {TABLES.filter((name) => result[name].length > 0).map((name) => (
        <Section key={name} id={name} title={w(`compare.${name}`)} note={w("compare.real", { n: result[name].filter((row) => row.verdict !== "same").length, all: result.counts[name] ?? 0 })}>
          <Changes rows={result[name]} most={MOST} />
        </Section>
      ))}
    </>
  );
}

function Changes({ rows, most }: { rows: Change[]; most: number }) {
  const w = useWords();
  const [all, setAll] = useState(false);
  const real = rows.filter((row) => row.verdict !== "same").length;
  const shown = all || most > rows.length ? rows : rows.slice(0, Math.min(most, real));
  return (
    <div class="table">
      {shown.length > 0 && <table>
        <thead><tr><th class="text" scope="col" /><th scope="col">{w("compare.before")}</th><th scope="col">{w("compare.after")}</th><th scope="col">{w("compare.change")}</th><th scope="col">{w("compare.noise")}</th><th class="text" scope="col">{w("compare.verdict")}</th></tr></thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.name}>
              <td class="text">{named(row.name, w)}</td>
              <td>{fixed(row.before, 2)} <small>{row.unit}</small></td><td>{fixed(row.after, 2)} <small>{row.unit}</small></td>
              <td>{row.percent === null ? "" : signedPercent(row.percent / 100)}</td>
              <td>± {row.before ? fixed((100 * row.noise) / Math.abs(row.before), 1) : "–"} %</td>
              <td class={`text verdict ${row.verdict}`}>{w(`verdict.${row.verdict}`)}</td>
            </tr>
          ))}
        </tbody>
      </table>}
      {rows.length > shown.length && <button type="button" class="more" onClick={() => setAll(true)}>{w("compare.all", { n: rows.length })}</button>}
    </div>
  );
}

function named(name: string, w: Words): string {
  const key = `phase.${name}`;
  return isWebKey(key) ? w(key as WebKey) : name;
}
