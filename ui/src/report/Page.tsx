// The report's page: the answer first, the proof below it, everything else on demand.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ThemeContext } from "../charts/useCanvas";
import { readCluster, readShares } from "../data/cluster";
import { diagnosisIn, type Language, type ReportDocument } from "../data/document";
import { focusOn, NO_FOCUS, type ViewId } from "../data/focus";
import { LanguageContext, textIn, useText } from "../i18n/text";
import { Arrivals } from "../views/Arrivals";
import { Collectives } from "../views/Collectives";
import { SceneContext, useScene } from "../views/context";
import { Findings } from "../views/Findings";
import { Links } from "../views/Links";
import { Map } from "../views/Map";
import { Memory } from "../views/Memory";
import { Operators } from "../views/Operators";
import { Packets } from "../views/Packets";
import { Steps } from "../views/Steps";
import { Time } from "../views/Time";
import { Warnings } from "../views/Warnings";
import { Header } from "./Header";
import { TopBar } from "./TopBar";
import { useTheme } from "./theme";

export function Page({ document: data }: { document: ReportDocument }) {
  const [language, setLanguage] = useState<Language>(data.language);
  const [chosen, setChosen] = useState(0);
  const theme = useTheme();
  const text = useMemo(() => textIn(language), [language]);
  const diagnosis = diagnosisIn(data, language);
  const cluster = useMemo(() => readCluster(data.tables.ranks), [data]);
  const shares = useMemo(() => readShares(data.tables.breakdown, cluster), [data, cluster]);
  const focus = useMemo(() => {
    const finding = diagnosis?.findings[chosen];
    return finding ? focusOn(finding, chosen, cluster) : NO_FOCUS;
  }, [diagnosis, chosen, cluster]);
  useEffect(() => { document.documentElement.lang = language === "zh" ? "zh-CN" : "en"; }, [language]);
  const show = (finding: number, view: ViewId): void => {
    setChosen(finding);
    // After the views have drawn the new marks.
    requestAnimationFrame(() => goTo(view));
  };
  return (
    <LanguageContext.Provider value={text}>
      <ThemeContext.Provider value={theme.shown}>
        <SceneContext.Provider value={{ document: data, cluster, shares, focus }}>
          <a class="skip" href="#findings">{text("skip")}</a>
          <TopBar theme={theme} onLanguage={() => setLanguage(language === "en" ? "zh" : "en")} />
          <main>
            <Header diagnosis={diagnosis} />
            <div class={shares.length ? "answer" : "answer alone"}>
              <Findings diagnosis={diagnosis} onShow={show} />
              <Map onPick={() => goTo("time")} />
            </div>
            <Marked title={diagnosis?.findings[chosen]?.title ?? null} />
            <Time />
            <Steps />
            <Collectives />
            <Arrivals />
            <Operators />
            <Packets />
            <Links />
            <Memory />
            <Warnings missing={diagnosis?.run.missingRanks ?? []} />
          </main>
        </SceneContext.Provider>
      </ThemeContext.Provider>
    </LanguageContext.Provider>
  );
}

/** Says once, between answer and proof, what is red below. */
function Marked({ title }: { title: string | null }) {
  const t = useText();
  const { focus } = useScene();
  if (title === null || focus.finding === null || (focus.ranks.size === 0 && focus.links.size === 0)) return null;
  return <p class="marked"><i aria-hidden="true" />{t("finding.marked", { n: focus.finding + 1, title })}</p>;
}

function goTo(view: ViewId): void {
  const section = document.getElementById(view);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section?.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  section?.focus({ preventScroll: true });
}
