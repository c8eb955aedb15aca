// The answer first: findings, who is slow, where a step's time goes.
import { Empty } from "../../components/Section";
import type { Diagnosis } from "../../data/document";
import type { ViewId } from "../../data/focus";
import { Header } from "../../report/Header";
import { useScene } from "../../views/context";
import { Findings } from "../../views/Findings";
import { Map } from "../../views/Map";
import { Steps } from "../../views/Steps";
import { Time } from "../../views/Time";
import { Warnings } from "../../views/Warnings";
import { runAddress, useRouter } from "../router";
import { useWords } from "../words";

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

export function Overview({ run, diagnosis }: { run: string; diagnosis: Diagnosis | null }) {
  const w = useWords();
  const { go } = useRouter();
  const { shares } = useScene();
  const show = (finding: number, view: ViewId): void => {
    const [page, query] = PROOFS[view];
    if (view === "data") document.getElementById("data")?.scrollIntoView();
    else go(runAddress(run, page, { ...query, finding: finding + 1 }));
  };
  return (
    <>
      <Header diagnosis={diagnosis} />
      <div class={shares.length ? "answer" : "answer alone"}>
        {diagnosis ? <Findings diagnosis={diagnosis} onShow={show} /> : (
          <section id="findings"><Empty title={w("overview.undiagnosed")} text={w("overview.undiagnosed.text")} /></section>
        )}
        <Map onPick={(rank) => go(runAddress(run, `cards/${rank.rank}`))} />
      </div>
      <Time />
      <Steps />
      <Warnings missing={diagnosis?.run.missingRanks ?? []} />
    </>
  );
}
