// One run: opened if necessary, then its pages, which share the data of the overview.
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Empty } from "../components/Section";
import { readCluster, readShares } from "../api/cluster";
import { diagnosisIn, readDocument, type Diagnosis } from "../api/document";
import { focusOn, NO_FOCUS } from "../api/focus";
import { bytes, count } from "../i18n/numbers";
import { RunDataContext } from "../api/runData";
import type { ServedReport } from "../api/types";
import { address, getJson, post, Problem, useJson, usePolling, type RunInfo } from "../api/client";
import { Link } from "../components/Link";
import { ProgressBar } from "../components/ProgressBar";
import { ProblemMessage } from "../components/ProblemMessage";
import { runAddress, useRouter } from "../components/router";
import { useLanguage, useText } from "../i18n/text";
import { CardPage } from "./card/CardPage";
import { CommunicationPage } from "./communication/CommunicationPage";
import { OverviewPage } from "./OverviewPage";
import { ResourcesPage } from "./ResourcesPage";
import { StepTracePage } from "./StepTracePage";
import { TimelinePage } from "./timeline/TimelinePage";
import { WhatIfPage } from "./WhatIfPage";

export interface PageProps {
  run: string;
  diagnosis: Diagnosis | null;
}

/** The pages of a run in the order of the navigation, where the text ui.nav.<name> names them. */
const PAGES = {
  overview: OverviewPage,
  steps: StepTracePage,
  communication: CommunicationPage,
  resources: ResourcesPage,
  timeline: TimelinePage,
  "what-if": WhatIfPage,
} satisfies Record<string, ComponentType<PageProps>>;
type PageName = keyof typeof PAGES;
const isPage = (name: string): name is PageName => name in PAGES;

interface RunPagesProps {
  run: string;
  page: string;
  rest: string[];
  switches: ComponentChildren;
}

export function RunPages({ run, page, rest, switches }: RunPagesProps) {
  const t = useText();
  const language = useLanguage();
  const { place } = useRouter();
  const [info, setInfo] = useState<RunInfo | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const tell = (error: unknown): void => {
    if (error instanceof Problem) setProblem(error);
  };
  const path = `runs/${encodeURIComponent(run)}`;
  const keep = (value: RunInfo): void => {
    setInfo(value);
    setProblem(null);
  };
  const open = (again = false): void => {
    post<RunInfo>(address(`${path}/open`, { lang: language, again: again ? "true" : null })).then(keep, tell);
  };
  useEffect(() => open(), [run]);
  const ready = info?.state.phase === "ready";
  usePolling(
    () => getJson<RunInfo>(address(path, { lang: language })).then(keep, tell),
    ready ? 6000 : 400,
    info?.state.phase !== "failed" && problem?.status !== 404,
  );
  const finding = Number(place.query.get("finding") ?? 1) - 1;
  const name = info ? (info.name === "." ? t("ui.web.runs.itself") : info.name.split("/").at(-1)!) : run;
  useEffect(() => {
    document.title = `${name} · Paceline`;
  }, [name]);
  return (
    <>
      <a class="skip" href="#main">
        {t("ui.web.skip")}
      </a>
      <header class="bar">
        <Link class="mark" to="/">
          Paceline
        </Link>
        <nav aria-label={t("ui.nav.pages")}>
          <Link class="here" to={runAddress(run)} title={info?.name}>
            {name}
          </Link>
          {(Object.keys(PAGES) as PageName[]).map((one) => (
            <Link
              key={one}
              to={runAddress(run, one, { finding: finding > 0 ? finding + 1 : null })}
              current={page === one || (one === "overview" && page !== "cards" && !isPage(page))}
            >
              {t(`ui.nav.${one}`)}
            </Link>
          ))}
          {page === "cards" && (
            <Link to={runAddress(run, `cards/${rest[0] ?? ""}`)} current>
              {t("ui.name.rank_title", { n: rest[0] ?? "" })}
            </Link>
          )}
          <Link to={`/compare?after=${encodeURIComponent(run)}`}>{t("ui.nav.compare")}</Link>
        </nav>
        {switches}
      </header>
      <main id="main" tabIndex={-1}>
        {problem && !ready && <h1 class="unseen">{name}</h1>}
        {problem && <ProblemMessage problem={problem} />}
        {!problem && info && !ready && <Opening info={info} onAgain={() => open(true)} />}
        {info?.stale && !problem && (
          <p class="stale" role="status">
            {t("ui.web.run.stale")}{" "}
            <button type="button" onClick={() => open(true)}>
              {t("ui.web.run.again")}
            </button>
          </p>
        )}
        {ready && !(problem && problem.status === 410) && (
          <Ready key={`${info.changed} ${info.bytes}`} run={run} page={page} rest={rest} chosen={finding} />
        )}
      </main>
    </>
  );
}

function Opening({ info, onAgain }: { info: RunInfo; onAgain: () => void }) {
  const t = useText();
  if (info.state.phase === "failed") {
    return (
      <div class="opening">
        <Empty
          title={t("ui.web.run.failed")}
          text={[info.state.message, info.state.hint].filter(Boolean).join(" – ")}
        />
        <p>
          <button type="button" onClick={onAgain}>
            {t("ui.web.run.again")}
          </button>
        </p>
      </div>
    );
  }
  return (
    <div class="opening">
      <h1>{info.name}</h1>
      <p>{t("ui.web.run.about", { ranks: count(info.ranks), files: count(info.files), size: bytes(info.bytes) })}</p>
      <ProgressBar state={info.state} />
      <p class="note">{t("ui.web.run.once")}</p>
    </div>
  );
}

interface ReadyProps {
  run: string;
  page: string;
  rest: string[];
  chosen: number;
}

/** All pages of a run that was read. Its key changes when the run is read again, and everything is fetched again. */
function Ready({ run, page, rest, chosen }: ReadyProps) {
  const language = useLanguage();
  const asked = useJson<ServedReport>(address(`runs/${encodeURIComponent(run)}/overview`, { lang: language }));
  const data = useMemo(() => (asked.value ? readDocument(asked.value) : null), [asked.value]);
  const diagnosis = data ? diagnosisIn(data, language) : null;
  const cluster = useMemo(() => (data ? readCluster(data.tables.ranks) : null), [data]);
  const shares = useMemo(() => (data && cluster ? readShares(data.tables.breakdown, cluster) : []), [data, cluster]);
  const focus = useMemo(() => {
    const finding = diagnosis?.findings[chosen];
    return finding && cluster ? focusOn(finding, chosen, cluster) : NO_FOCUS;
  }, [diagnosis, chosen, cluster]);
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  if (!data || !cluster) return null;
  return (
    <RunDataContext.Provider value={{ document: data, cluster, shares, focus }}>
      <OnePage run={run} page={page} rest={rest} diagnosis={diagnosis} />
    </RunDataContext.Provider>
  );
}

interface OnePageProps extends PageProps {
  page: string;
  rest: string[];
}

function OnePage({ page, rest, ...props }: OnePageProps) {
  if (page === "cards") return <CardPage run={props.run} rank={Number(rest[0])} />;
  const Page: ComponentType<PageProps> = isPage(page) ? PAGES[page] : OverviewPage;
  return <Page {...props} />;
}
