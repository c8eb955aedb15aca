// The answer first: findings, who is slow, where a step's time goes.
import { Empty } from "../components/Section";
import type { Diagnosis } from "../api/document";
import type { ViewId } from "../api/focus";
import { RunHeader } from "../sections/RunHeader";
import { useRunData } from "../api/runData";
import { Findings } from "../sections/Findings";
import { RankMap } from "../sections/RankMap";
import { StepsOverTime } from "../sections/StepsOverTime";
import { LossWaterfall } from "../sections/LossWaterfall";
import { StepBreakdown } from "../sections/StepBreakdown";
import { DataQuality } from "../sections/DataQuality";
import { runAddress, useRouter } from "../components/router";
import { useText } from "../i18n/text";

/** Which page proves what a finding says. */
const PROOFS: Record<ViewId, [page: string, query: Record<string, string>]> = {
  time: ["steps", {}],
  steps: ["steps", {}],
  collectives: ["communication", { tab: "collectives" }],
  arrivals: ["communication", { tab: "ranks" }],
  operators: ["communication", { tab: "collectives" }],
  packets: ["communication", { tab: "packets" }],
  links: ["communication", { tab: "matrix" }],
  memory: ["resources", {}],
  data: ["overview", {}],
};

export function OverviewPage({ run, diagnosis }: { run: string; diagnosis: Diagnosis | null }) {
  const t = useText();
  const { go } = useRouter();
  const { shares } = useRunData();
  const show = (finding: number, view: ViewId): void => {
    const [page, query] = PROOFS[view];
    if (view === "data") document.getElementById("data")?.scrollIntoView();
    else go(runAddress(run, page, { ...query, finding: finding + 1 }));
  };
  return (
    <>
      <RunHeader diagnosis={diagnosis} />
      <div class={shares.length ? "answer" : "answer alone"}>
        {diagnosis ? (
          <Findings diagnosis={diagnosis} onShow={show} />
        ) : (
          <section id="findings">
            <Empty title={t("ui.web.overview.undiagnosed")} text={t("ui.web.overview.undiagnosed.text")} />
          </section>
        )}
        <RankMap onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`))} />
      </div>
      <LossWaterfall diagnosis={diagnosis} />
      <StepBreakdown />
      <StepsOverTime />
      <DataQuality missing={diagnosis?.run.missing_ranks ?? []} />
    </>
  );
}
