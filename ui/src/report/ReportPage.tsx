// The report's page: the answer first, the proof below it, everything else on demand.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ThemeContext } from "../charts/useCanvas";
import { readCluster, readShares } from "../api/cluster";
import { diagnosisIn, type Language, type ReportDocument } from "../api/document";
import { focusOn, NO_FOCUS, type ViewId } from "../api/focus";
import { LanguageContext, localize, useText } from "../i18n/text";
import { Arrivals } from "../sections/Arrivals";
import { CollectiveTable } from "../sections/CollectiveTable";
import { RunDataContext, useRunData } from "../api/runData";
import { Findings } from "../sections/Findings";
import { Links } from "../sections/Links";
import { RankMap } from "../sections/RankMap";
import { MemoryPeaks } from "../sections/MemoryPeaks";
import { CommunicationOperators } from "../sections/CommunicationOperators";
import { PacketSizes } from "../sections/PacketSizes";
import { StepsOverTime } from "../sections/StepsOverTime";
import { LossWaterfall } from "../sections/LossWaterfall";
import { StepBreakdown } from "../sections/StepBreakdown";
import { DataQuality } from "../sections/DataQuality";
import { RunHeader } from "../sections/RunHeader";
import { TopBar } from "./TopBar";
import { useTheme } from "../style/theme";

export function ReportPage({ document: data }: { document: ReportDocument }) {
  const [language, setLanguage] = useState<Language>(data.language);
  const [chosen, setChosen] = useState(0);
  const theme = useTheme();
  const localization = useMemo(() => localize(language), [language]);
  const diagnosis = diagnosisIn(data, language);
  const cluster = useMemo(() => readCluster(data.tables.ranks), [data]);
  const shares = useMemo(() => readShares(data.tables.breakdown, cluster), [data, cluster]);
  const focus = useMemo(() => {
    const finding = diagnosis?.findings[chosen];
    return finding ? focusOn(finding, chosen, cluster) : NO_FOCUS;
  }, [diagnosis, chosen, cluster]);
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }, [language]);
  const show = (finding: number, view: ViewId): void => {
    setChosen(finding);
    // After the views have drawn the new marks.
    requestAnimationFrame(() => goTo(view));
  };
  return (
    <LanguageContext.Provider value={localization}>
      <ThemeContext.Provider value={theme.shown}>
        <RunDataContext.Provider value={{ document: data, cluster, shares, focus }}>
          <a class="skip" href="#findings">
            {localization.text("ui.report.skip")}
          </a>
          <TopBar theme={theme} onLanguage={() => setLanguage(language === "en" ? "zh" : "en")} />
          <main>
            <RunHeader diagnosis={diagnosis} />
            <div class={shares.length ? "answer" : "answer alone"}>
              <Findings diagnosis={diagnosis} onShow={show} />
              <RankMap onPick={() => goTo("time")} />
            </div>
            <Marked title={diagnosis?.findings[chosen]?.title ?? null} />
            <LossWaterfall diagnosis={diagnosis} />
            <StepBreakdown />
            <StepsOverTime />
            <CollectiveTable />
            <Arrivals />
            <CommunicationOperators />
            <PacketSizes />
            <Links />
            <MemoryPeaks />
            <DataQuality missing={diagnosis?.run.missing_ranks ?? []} />
          </main>
        </RunDataContext.Provider>
      </ThemeContext.Provider>
    </LanguageContext.Provider>
  );
}

/** Says once, between answer and proof, what is red below. */
function Marked({ title }: { title: string | null }) {
  const t = useText();
  const { focus } = useRunData();
  if (title === null || focus.finding === null || (focus.ranks.size === 0 && focus.links.size === 0)) return null;
  return (
    <p class="marked">
      <i aria-hidden="true" />
      {t("ui.finding.marked", { n: focus.finding + 1, title })}
    </p>
  );
}

function goTo(view: ViewId): void {
  const section = document.getElementById(view);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section?.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  section?.focus({ preventScroll: true });
}
