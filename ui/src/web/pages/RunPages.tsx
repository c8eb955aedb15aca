// One run: opened if need be, then its pages, which share what the overview knows.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Empty } from "../../components/Section";
import { readCluster, readShares } from "../../data/cluster";
import { diagnosisIn, readDocument, type Diagnosis, type Json } from "../../data/document";
import { focusOn, NO_FOCUS } from "../../data/focus";
import { bytes, count } from "../../format/numbers";
import { SceneContext } from "../../views/context";
import { address, getJson, post, Problem, useJson, usePolling, type RunInfo } from "../api";
import { Link } from "../parts/Link";
import { ProgressBar } from "../parts/ProgressBar";
import { Trouble } from "../parts/Trouble";
import { runAddress, useRouter } from "../router";
import { useLanguage, useWords, type WebKey } from "../words";
import { Card } from "./Card";
import { Communication } from "./Communication";
import { Overview } from "./Overview";
import { Resources } from "./Resources";
import { StepTrace } from "./StepTrace";
import { TimelinePage } from "./TimelinePage";
import { WhatIf } from "./WhatIf";

const PAGES = ["overview", "steps", "communication", "resources", "timeline", "what-if"] as const;

interface RunPagesProps {
  run: string;
  page: string;
  rest: string[];
  switches: ComponentChildren;
}

export function RunPages({ run, page, rest, switches }: RunPagesProps) {
  const w = useWords();
  const language = useLanguage();
  const { place } = useRouter();
  const [info, setInfo] = useState<RunInfo | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const tell = (error: unknown): void => { if (error instanceof Problem) setProblem(error); };
  const path = `runs/${encodeURIComponent(run)}`;
  const keep = (value: RunInfo): void => { setInfo(value); setProblem(null); };
  const open = (again = false): void => { post<RunInfo>(address(`${path}/open`, { lang: language, again: again ? "true" : null })).then(keep, tell); };
  useEffect(() => open(), [run]);
  const ready = info?.state.phase === "ready";
  usePolling(() => { getJson<RunInfo>(address(path, { lang: language })).then(keep, tell); }, ready ? 6000 : 400, info?.state.phase !== "failed" && problem?.status !== 404);
  const finding = Number(place.query.get("finding") ?? 1) - 1;
  const name = info ? (info.name === "." ? w("runs.itself") : info.name.split("/").at(-1)!) : run;
  useEffect(() => { document.title = `${name} · Paceline`; }, [name]);
  return (
    <>
      <a class="skip" href="#main">{w("skip")}</a>
      <header class="bar">
        <Link class="mark" to="/">Paceline</Link>
        <nav aria-label={w("nav.pages")}>
          <Link class="here" to={runAddress(run)} title={info?.name}>{name}</Link>
          {PAGES.map((one) => (
            <Link key={one} to={runAddress(run, one, { finding: finding > 0 ? finding + 1 : null })} current={page === one || (page === "cards" && one === "steps")}>
              {w(`nav.${one}` as WebKey)}
            </Link>
          ))}
          <Link to={`/compare?after=${encodeURIComponent(run)}`}>{w("nav.compare")}</Link>
        </nav>
        {switches}
      </header>
      <main id="main" tabIndex={-1}>
        {problem && !ready && <h1 class="unseen">{name}</h1>}
        {problem && <Trouble problem={problem} />}
        {!problem && info && !ready && <Opening info={info} onAgain={() => open(true)} />}
        {info?.stale && !problem && (
          <p class="stale" role="status">{w("run.stale")} <button type="button" onClick={() => open(true)}>{w("run.again")}</button></p>
        )}
        {ready && !(problem && problem.status === 410) && <Ready key={`${info.changed} ${info.bytes}`} run={run} page={page} rest={rest} chosen={finding} />}
      </main>
    </>
  );
}

function Opening({ info, onAgain }: { info: RunInfo; onAgain: () => void }) {
  const w = useWords();
  if (info.state.phase === "failed") {
    return (
      <div class="opening">
        <Empty title={w("run.failed")} text={[info.state.message, info.state.hint].filter(Boolean).join(" – ")} />
        <p><button type="button" onClick={onAgain}>{w("run.again")}</button></p>
      </div>
    );
  }
  return (
    <div class="opening">
      <h1>{info.name}</h1>
      <p>{w("run.about", { ranks: count(info.ranks), files: count(info.files), size: bytes(info.bytes) })}</p>
      <ProgressBar state={info.state} />
      <p class="note">{w("run.once")}</p>
    </div>
  );
}

interface ReadyProps {
  run: string;
  page: string;
  rest: string[];
  chosen: number;
}

/** All pages of a run that was read. Read again, it is another one: its key says so, and everything is asked anew. */
function Ready({ run, page, rest, chosen }: ReadyProps) {
  const language = useLanguage();
  const asked = useJson<Json>(address(`runs/${encodeURIComponent(run)}/overview`, { lang: language }));
  const data = useMemo(() => (asked.value ? readDocument(asked.value) : null), [asked.value]);
  const diagnosis = data ? diagnosisIn(data, language) : null;
  const cluster = useMemo(() => (data ? readCluster(data.tables.ranks) : null), [data]);
  const shares = useMemo(() => (data && cluster ? readShares(data.tables.breakdown, cluster) : []), [data, cluster]);
  const focus = useMemo(() => {
    const finding = diagnosis?.findings[chosen];
    return finding && cluster ? focusOn(finding, chosen, cluster) : NO_FOCUS;
  }, [diagnosis, chosen, cluster]);
  if (asked.problem) return <Trouble problem={asked.problem} />;
  if (!data || !cluster) return null;
  return (
    <SceneContext.Provider value={{ document: data, cluster, shares, focus }}>
      <PageOf run={run} page={page} rest={rest} diagnosis={diagnosis} />
    </SceneContext.Provider>
  );
}

function PageOf({ run, page, rest, diagnosis }: { run: string; page: string; rest: string[]; diagnosis: Diagnosis | null }) {
  switch (page) {
    case "steps": return <StepTrace run={run} />;
    case "communication": return <Communication run={run} />;
    case "resources": return <Resources run={run} />;
    case "timeline": return <TimelinePage run={run} />;
    case "what-if": return <WhatIf run={run} />;
    case "cards": return <Card run={run} rank={Number(rest[0])} />;
    default: return <Overview run={run} diagnosis={diagnosis} />;
  }
}
