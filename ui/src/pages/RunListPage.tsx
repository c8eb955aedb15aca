// All runs below the served directory: newest first, searched, with how far each one is.
import { useEffect, useRef, useState } from "preact/hooks";
import { Empty } from "../components/Section";
import { bytes, count, duration, percent } from "../i18n/numbers";
import { useLanguage, useText, type Key } from "../i18n/text";
import { address, getJson, post, Problem, usePolling, type RunInfo, type RunList } from "../api/client";
import { Link } from "../components/Link";
import { ProgressBar } from "../components/ProgressBar";
import { Busy, ProblemMessage } from "../components/ProblemMessage";
import { runAddress, useSetting } from "../components/router";

const PAGE = 50;

export function RunListPage() {
  const t = useText();
  const language = useLanguage();
  const [search, setSearch] = useSetting("q");
  const [page, setPage] = useSetting("page", "1");
  const [list, setList] = useState<RunList | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const offset = (Math.max(1, Number(page) || 1) - 1) * PAGE;
  const url = address("runs", { q: search, offset, limit: PAGE, lang: language });
  const latest = useRef(url);
  latest.current = url;
  // Answers may overtake each other while somebody types: only the one to the last question counts.
  const load = (): Promise<void> =>
    getJson<RunList>(url).then(
      (value) => {
        if (latest.current === url) {
          setList(value);
          setProblem(null);
        }
      },
      (error: unknown) => {
        if (latest.current === url && error instanceof Problem) setProblem(error);
      },
    );
  useEffect(() => {
    void load();
  }, [url]);
  const readAll = (): void => {
    post(address("runs/open", { q: search })).then(load, (error: unknown) => {
      if (error instanceof Problem) setProblem(error);
    });
  };
  const working =
    list?.scanning || list?.runs.some((run) => ["queued", "reading", "examining"].includes(run.state.phase));
  usePolling(load, working ? 700 : 5000, true);
  return (
    <section class="runs">
      <div class="headline">
        <div>
          <h1>{t("ui.web.runs.title")}</h1>
          {list && <p>{t("ui.web.runs.below", { n: count(list.total), base: list.base })}</p>}
        </div>
      </div>
      <div class="controls">
        <input
          type="search"
          class="search"
          value={search}
          placeholder={t("ui.web.runs.search")}
          aria-label={t("ui.web.runs.search")}
          onInput={(event) => {
            setPage("1");
            setSearch(event.currentTarget.value);
          }}
        />
        {list?.runs.some(isUnread) && (
          <button type="button" onClick={readAll}>
            {t("ui.web.runs.readall")}
          </button>
        )}
        {list?.scanning && <Busy text={t("ui.web.runs.scanning")} />}
      </div>
      {problem && <ProblemMessage problem={problem} />}
      {list && list.total === 0 && !list.scanning && (
        <Empty title={t(search ? "ui.web.runs.nomatch" : "ui.web.runs.none")} text={t("ui.web.runs.none.text")} />
      )}
      {list && list.runs.length > 0 && (
        <div class="table">
          <table>
            <caption class="unseen">{t("ui.web.runs.title")}</caption>
            <thead>
              <tr>
                <th class="text" scope="col">
                  {t("ui.web.runs.run")}
                </th>
                <th scope="col">{t("ui.web.runs.ranks")}</th>
                <th scope="col">{t("ui.web.runs.step")}</th>
                <th class="text" scope="col">
                  {t("ui.web.runs.answer")}
                </th>
                <th class="text" scope="col">
                  {t("ui.web.runs.format")}
                </th>
                <th scope="col">{t("ui.column.size")}</th>
                <th scope="col">{t("ui.web.runs.changed")}</th>
              </tr>
            </thead>
            <tbody>
              {list.runs.map((run) => (
                <RunRow key={run.id} run={run} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {list && list.total > PAGE && (
        <div class="pager">
          <span>
            {t("ui.web.table.range", { from: offset + 1, to: Math.min(list.total, offset + PAGE), total: list.total })}
          </span>
          <button type="button" disabled={offset === 0} onClick={() => setPage(String(Number(page) - 1))}>
            {t("ui.web.table.before")}
          </button>
          <button
            type="button"
            disabled={offset + PAGE >= list.total}
            onClick={() => setPage(String(Number(page) + 1))}
          >
            {t("ui.web.table.next")}
          </button>
        </div>
      )}
      {list && list.warnings.length > 0 && (
        <ul class="warnings">
          {list.warnings.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** Neither open nor read before with the files it has now. */
const isUnread = (run: RunInfo): boolean => run.state.phase === "found" && run.findings === null;

function RunRow({ run }: { run: RunInfo }) {
  const language = useLanguage();
  const t = useText();
  const parts = run.name === "." ? [t("ui.web.runs.itself")] : run.name.split("/");
  return (
    <tr>
      <td class="text">
        <Link class="place" to={runAddress(run.id)} title={run.name}>
          {parts.length > 1 && <small>{parts.slice(0, -1).join("/")}/</small>}
          <strong>{parts.at(-1)}</strong>
        </Link>
      </td>
      <td>{run.ranks ? count(run.ranks) : ""}</td>
      <td>{run.step_ms !== null ? duration(run.step_ms) : ""}</td>
      <td class="text answer-cell">
        {(run.state.phase === "ready" || run.findings !== null) &&
          (run.worst ? (
            <span>
              <b class={`severity ${run.severity}`}>{t(`ui.severity.${run.severity}` as Key)}</b> {run.worst}
              {run.gain_percent ? (
                <small> {t("ui.web.runs.gain", { percent: percent(run.gain_percent / 100, 1) })}</small>
              ) : null}
            </span>
          ) : (
            <span>{run.findings === 0 ? t("ui.web.runs.healthy") : t("ui.web.runs.undiagnosed")}</span>
          ))}
        {isUnread(run) && <small>{t("ui.web.state.found")}</small>}
        {run.state.phase === "failed" && <span>{t("ui.web.runs.failed", { message: run.state.message ?? "" })}</span>}
        {["queued", "reading", "examining"].includes(run.state.phase) && <ProgressBar state={run.state} />}
      </td>
      <td class="text">{run.formats.join(", ")}</td>
      <td>{bytes(run.bytes)}</td>
      <td>
        {new Date(run.changed * 1000).toLocaleString(language === "zh" ? "zh-CN" : "en-GB", {
          dateStyle: "medium",
          timeStyle: "short",
        })}
      </td>
    </tr>
  );
}
