// Two runs side by side: what became faster or slower beyond noise, and what became of the findings.
import { useEffect, useState } from "preact/hooks";
import { Choice } from "../components/Choice";
import { Empty, Section } from "../components/Section";
import { StepTimes } from "../components/StepTimes";
import { count, percent, UNKNOWN } from "../i18n/numbers";
import type { ChangedValue, RunComparison } from "../api/types";
import { address, post, Problem, useJson, usePolling, type RunInfo, type RunList } from "../api/client";
import { Title } from "../components/Filters";
import { Link } from "../components/Link";
import { ProgressBar } from "../components/ProgressBar";
import { rankCell } from "../components/RankLink";
import { ServerTable } from "../components/ServerTable";
import { ProblemMessage } from "../components/ProblemMessage";
import { runAddress, useRouter, useSetting } from "../components/router";
import { isKey, useLanguage, useText, type Key, type Text } from "../i18n/text";

const PARTS = ["phases", "ranks", "operators", "transports", "links"] as const;
type Part = (typeof PARTS)[number];

export function ComparePage() {
  const t = useText();
  const language = useLanguage();
  const { place, set } = useRouter();
  const [before, after] = [place.query.get("before") ?? "", place.query.get("after") ?? ""];
  const list = useJson<RunList>(address("runs", { limit: 500, lang: language }));
  const states = useOpening([before, after].filter(Boolean));
  const ready = Boolean(before && after) && states.every((one) => one?.state.phase === "ready");
  const asked = useJson<RunComparison>(ready ? address("compare", { before, after, lang: language }) : null);
  const failed = states.find((one) => one?.state.phase === "failed");
  return (
    <>
      <Title title={t("ui.web.compare.title")} note={t("ui.web.compare.note")} />
      <div class="controls">
        <RunPick label={t("ui.column.before")} name="before" value={before} runs={list.value?.runs ?? []} />
        <button
          type="button"
          onClick={() => set({ before: after, after: before })}
          disabled={!before || !after}
          aria-label={t("ui.web.compare.swap")}
          title={t("ui.web.compare.swap")}
        >
          ⇄
        </button>
        <RunPick label={t("ui.column.after")} name="after" value={after} runs={list.value?.runs ?? []} />
      </div>
      {list.problem && <ProblemMessage problem={list.problem} />}
      {(!before || !after) && <Empty title={t("ui.web.compare.pick")} text={t("ui.web.compare.pick.text")} />}
      {failed && <Empty title={t("ui.web.run.failed")} text={`${failed.name}: ${failed.state.message ?? ""}`} />}
      {states
        .filter((one): one is RunInfo => one !== null && !["ready", "failed"].includes(one.state.phase))
        .map((one) => (
          <p key={one.id} class="opening-one">
            {one.name} <ProgressBar state={one.state} />
          </p>
        ))}
      {asked.problem && <ProblemMessage problem={asked.problem} />}
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
    await Promise.all(
      open.map((run) =>
        post<RunInfo>(address(`runs/${encodeURIComponent(run)}/open`, { lang: language })).then(
          (value) => setStates((old) => ({ ...old, [run]: value })),
          (error: unknown) => {
            if (!(error instanceof Problem)) return;
            const state = { phase: "failed", done: 0, total: 0, message: error.message, hint: error.hint } as const;
            setStates((old) => ({ ...old, [run]: { id: run, name: run, state } as unknown as RunInfo }));
          },
        ),
      ),
    );
  };
  useEffect(() => {
    void ask();
  }, [runs.join(" ")]);
  usePolling(
    ask,
    500,
    runs.some((run) => !["ready", "failed"].includes(states[run]?.state.phase ?? "")),
  );
  return runs.map((run) => states[run] ?? null);
}

function RunPick({ label, name, value, runs }: { label: string; name: string; value: string; runs: RunInfo[] }) {
  const t = useText();
  const { set } = useRouter();
  return (
    <label class="pick">
      <span>{label}</span>
      <select name={name} value={value} onChange={(event) => set({ [name]: event.currentTarget.value })}>
        <option value="">{t("ui.web.compare.choose")}</option>
        {runs.map((run) => (
          <option key={run.id} value={run.id}>
            {run.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Result({ result, before, after }: { result: RunComparison; before: string; after: string }) {
  const t = useText();
  const { step } = result;
  const [show, setShow] = useSetting("show", "changed");
  const others = PARTS.filter((part) => part !== "phases" && result.tables[part].rows > 0);
  return (
    <>
      <div class="headline compared">
        <StepTimes
          before={step.before}
          beforeLabel={<Link to={runAddress(before)}>{t("ui.column.before")}</Link>}
          after={step.after}
          afterLabel={
            <>
              <Link to={runAddress(after)}>{t("ui.column.after")}</Link> · <b>{stepVerdict(step, t)}</b>
            </>
          }
        />
      </div>
      <Section id="findings" title={t("ui.web.compare.findings")}>
        {result.findings.length === 0 && <p class="note">{t("ui.web.compare.nofindings")}</p>}
        <ul class="fates">
          {result.findings.map((fate, i) => (
            <li key={i} class={fate.status}>
              <b>{t(`ui.web.fate.${fate.status}`)}</b> {fate.title}
            </li>
          ))}
        </ul>
      </Section>
      {!result.same_ranks && <p class="note">{t("ui.web.compare.otherranks")}</p>}
      <Changes
        part="phases"
        title={t("ui.web.compare.phases")}
        before={before}
        after={after}
        all
        rows={result.tables.phases.rows}
      />
      {others.length > 0 && (
        <div class="controls">
          <Choice
            label={t("ui.web.compare.show")}
            value={show}
            onChange={setShow}
            options={[
              { value: "changed", label: t("ui.web.compare.changed") },
              { value: "all", label: t("ui.filter.all") },
            ]}
          />
        </div>
      )}
      {others.map((part) => (
        <Changes
          key={part}
          part={part}
          title={t(`ui.web.compare.${part}`)}
          note={
            result.tables[part].changed === 0 && show !== "all"
              ? undefined
              : t("ui.web.compare.real", {
                  n: count(result.tables[part].changed),
                  all: count(result.tables[part].rows),
                })
          }
          before={before}
          after={after}
          all={show === "all"}
          rows={result.tables[part].rows}
        />
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
  const t = useText();
  return (
    <Section id={part} title={title} note={note}>
      <ServerTable
        name={part}
        path={`compare/tables/${part}`}
        filters={{ before, after, verdict: all ? null : "changed" }}
        sort="place"
        hidden={["place"]}
        prefix={part}
        size={12}
        caption={title}
        empty={t("ui.web.compare.nothing", { n: count(rows) })}
        render={{
          ...(part === "phases" && { name: (row) => named(String(row["name"]), t) }),
          ...(part === "ranks" && { rank: rankCell(after) }),
          noise: (row) => (typeof row["noise"] === "number" ? `± ${percent(row["noise"], 1)}` : UNKNOWN),
          verdict: (row) => (
            <span class={`verdict ${row["verdict"]}`}>
              {isVerdict(row["verdict"]) ? t(`ui.web.verdict.${row["verdict"]}`) : row["verdict"]}
            </span>
          ),
        }}
      />
    </Section>
  );
}

/** "faster, 12.3 % less time per step"; nothing more where the change is within noise. */
function stepVerdict(step: ChangedValue, t: Text): string {
  const verdict = t(`ui.web.verdict.${step.verdict}`);
  if (step.verdict === "same" || step.percent === null) return verdict;
  const key = step.percent < 0 ? "ui.web.compare.less" : "ui.web.compare.more";
  return `${verdict}, ${t(key, { percent: percent(Math.abs(step.percent) / 100, 1) })}`;
}

const isVerdict = (value: unknown): value is ChangedValue["verdict"] =>
  typeof value === "string" && isKey(`ui.web.verdict.${value}`);

function named(name: string, t: Text): string {
  const key = `ui.web.phase.${name}`;
  return isKey(key) ? t(key as Key) : name;
}
