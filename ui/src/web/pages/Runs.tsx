// All runs below the served directory: newest first, searched, with how far each one is.
import { useEffect, useState } from "preact/hooks";
import { Empty } from "../../components/Section";
import { bytes, count, duration, percent } from "../../format/numbers";
import { useText, type Key } from "../../i18n/text";
import { address, getJson, Problem, usePolling, type RunInfo, type RunList } from "../api";
import { Link } from "../parts/Link";
import { ProgressBar } from "../parts/ProgressBar";
import { Busy, Trouble } from "../parts/Trouble";
import { runAddress, useSetting } from "../router";
import { useLanguage, useWords } from "../words";

const PAGE = 50;

export function Runs() {
  const w = useWords();
  const language = useLanguage();
  const [search, setSearch] = useSetting("q");
  const [page, setPage] = useSetting("page", "1");
  const [list, setList] = useState<RunList | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const offset = (Math.max(1, Number(page) || 1) - 1) * PAGE;
  const url = address("runs", { q: search, offset, limit: PAGE, lang: language });
  const load = (): void => {
    getJson<RunList>(url).then(
      (value) => { setList(value); setProblem(null); },
      (error: unknown) => { if (error instanceof Problem) setProblem(error); },
    );
  };
  useEffect(load, [url]);
  const working = list?.scanning || list?.runs.some((run) => ["queued", "reading", "examining"].includes(run.state.phase));
  usePolling(load, working ? 700 : 5000, true);
  return (
    <section class="runs">
      <div class="headline"><div><h1>{w("runs.title")}</h1>{list && <p>{w("runs.below", { n: count(list.total), base: list.base })}</p>}</div></div>
      <div class="controls">
        <input type="search" class="search" value={search} placeholder={w("runs.search")} aria-label={w("runs.search")}
          onInput={(event) => { setPage("1"); setSearch(event.currentTarget.value); }} />
        {list?.scanning && <Busy text={w("runs.scanning")} />}
      </div>
      {problem && <Trouble problem={problem} />}
      {list && list.total === 0 && !list.scanning && <Empty title={w(search ? "runs.nomatch" : "runs.none")} text={w("runs.none.text")} />}
      {list && list.runs.length > 0 && (
        <div class="table">
          <table>
            <caption class="unseen">{w("runs.title")}</caption>
            <thead>
              <tr>
                <th class="text" scope="col">{w("runs.run")}</th><th scope="col">{w("runs.ranks")}</th>
                <th scope="col">{w("runs.step")}</th><th class="text" scope="col">{w("runs.answer")}</th>
                <th class="text" scope="col">{w("runs.format")}</th><th scope="col">{w("runs.size")}</th>
                <th scope="col">{w("runs.changed")}</th>
              </tr>
            </thead>
            <tbody>{list.runs.map((run) => <RunRow key={run.id} run={run} />)}</tbody>
          </table>
        </div>
      )}
      {list && list.total > PAGE && (
        <div class="pager">
          <span>{w("table.range", { from: offset + 1, to: Math.min(list.total, offset + PAGE), total: list.total })}</span>
          <button type="button" disabled={offset === 0} onClick={() => setPage(String(Number(page) - 1))}>{w("table.before")}</button>
          <button type="button" disabled={offset + PAGE >= list.total} onClick={() => setPage(String(Number(page) + 1))}>{w("table.next")}</button>
        </div>
      )}
      {list && list.warnings.length > 0 && <ul class="warnings">{list.warnings.map((text) => <li key={text}>{text}</li>)}</ul>}
    </section>
  );
}

function RunRow({ run }: { run: RunInfo }) {
  const w = useWords();
  const language = useLanguage();
  const t = useText();
  const parts = run.name === "." ? [w("runs.itself")] : run.name.split("/");
  return (
    <tr>
      <td class="text">
        <Link class="place" to={runAddress(run.id)} title={run.name}>
          {parts.length > 1 && <small>{parts.slice(0, -1).join("/")}/</small>}<strong>{parts.at(-1)}</strong>
        </Link>
      </td>
      <td>{run.ranks ? count(run.ranks) : ""}</td>
      <td>{run.step_ms !== null ? duration(run.step_ms) : ""}</td>
      <td class="text answer-cell">
        {run.state.phase === "ready" && (run.worst
          ? <span><b class={`severity ${run.severity}`}>{t(`severity.${run.severity}` as Key)}</b> {run.worst}{run.gain_percent ? <small> {w("runs.gain", { percent: percent(run.gain_percent / 100, 1) })}</small> : null}</span>
          : <span>{run.findings === 0 ? w("runs.healthy") : w("runs.undiagnosed")}</span>)}
        {run.state.phase === "found" && <small>{w("runs.unread")}</small>}
        {run.state.phase === "failed" && <span>{w("runs.failed")}: {run.state.message}</span>}
        {["queued", "reading", "examining"].includes(run.state.phase) && <ProgressBar state={run.state} />}
      </td>
      <td class="text">{run.formats.join(", ")}</td>
      <td>{bytes(run.bytes)}</td>
      <td>{new Date(run.changed * 1000).toLocaleString(language === "zh" ? "zh-CN" : "en-GB", { dateStyle: "medium", timeStyle: "short" })}</td>
    </tr>
  );
}
