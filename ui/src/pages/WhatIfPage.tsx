// What-if: tick fixes, see the predicted step time and the critical path after them.
import { useMemo, useState } from "preact/hooks";
import { Empty, Section } from "../components/Section";
import { StepTimes } from "../components/StepTimes";
import { duration } from "../i18n/numbers";
import { isKey, useLanguage, useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";
import { gainText } from "../sections/RunHeader";
import { fullName } from "../i18n/rankNames";
import type { Fix, Fixes, WhatIfAnswer } from "../api/types";
import { address, useJson } from "../api/client";
import { Title } from "../components/Filters";
import { RankLink } from "../components/RankLink";
import { Busy, ProblemMessage } from "../components/ProblemMessage";
import { useRouter } from "../components/router";

export function WhatIfPage({ run }: { run: string }) {
  const t = useText();
  const { place, set } = useRouter();
  const chosen = useMemo(() => (place.query.get("fix") ?? "").split(" ").filter(Boolean), [place]);
  const asked = useJson<WhatIfAnswer>(address(`runs/${encodeURIComponent(run)}/what-if`, { fix: chosen }));
  const choose = (fixes: string[]): void => set({ fix: [...new Set(fixes)].join(" ") });
  return (
    <>
      <Title title={t("ui.web.whatif.title")} note={t("ui.web.whatif.note")} />
      <div class="answer whatif">
        <Section id="fixes" title={t("ui.web.whatif.fixes")}>
          <FixList run={run} chosen={chosen} onChoose={choose} />
          <CustomFix onAdd={(fix) => choose([...chosen, fix])} />
        </Section>
        <Section id="result" title={t("ui.web.whatif.result")}>
          {asked.problem && <ProblemMessage problem={asked.problem} />}
          {asked.busy && <Busy text={t("ui.web.whatif.busy")} />}
          {asked.value && <PredictedStep run={run} prediction={asked.value} fixed={chosen.length > 0} />}
        </Section>
      </div>
    </>
  );
}

interface FixListProps {
  run: string;
  chosen: string[];
  onChoose: (fixes: string[]) => void;
}

/** The fixes of the findings, then those the reader added. */
function FixList({ run, chosen, onChoose }: FixListProps) {
  const t = useText();
  const language = useLanguage();
  const asked = useJson<Fixes>(address(`runs/${encodeURIComponent(run)}/fixes`, { lang: language }));
  const offered = asked.value?.fixes ?? [];
  const added = chosen.filter((fix) => !offered.some((one) => one.fix === fix));
  const all: Fix[] = [...offered, ...added.map((fix) => ({ fix, finding: null, title: null }))];
  const tick = (fix: string, checked: boolean): void =>
    onChoose(checked ? [...chosen, fix] : chosen.filter((one) => one !== fix));
  if (asked.value && all.length === 0) return <p class="note">{t("ui.web.whatif.none")}</p>;
  return (
    <ul class="fixes">
      {all.map((one) => (
        <li key={one.fix}>
          <label>
            <input
              type="checkbox"
              name={one.fix}
              checked={chosen.includes(one.fix)}
              onChange={(event) => tick(one.fix, event.currentTarget.checked)}
            />
            <span>
              <strong>{fixName(one.fix, t)}</strong>
              {one.title && (
                <small>
                  {t("ui.finding.number", { n: one.finding ?? 0 })}
                  {t("ui.finding.title", { title: one.title })}
                </small>
              )}
            </span>
          </label>
        </li>
      ))}
    </ul>
  );
}

interface PredictedStepProps {
  run: string;
  prediction: WhatIfAnswer;
  fixed: boolean;
}

function PredictedStep({ run, prediction, fixed }: PredictedStepProps) {
  const t = useText();
  const { step_ms_now: now, step_ms_fixed: then, path } = prediction;
  const label = fixed ? (
    <>
      {t("ui.web.whatif.faster")} · <b>{gainText(prediction, t)}</b>
    </>
  ) : (
    t("ui.web.whatif.tick")
  );
  return (
    <>
      <StepTimes before={now} beforeLabel={t("ui.web.whatif.now")} after={then} afterLabel={label} />
      <div class="gain">
        <div class="track" aria-hidden="true">
          <i style={{ width: `${(100 * then) / now}%` }} />
        </div>
      </div>
      <h3>{t("ui.web.whatif.holders")}</h3>
      <p class="note">
        {t("ui.web.whatif.holders.note", { work: duration(path.work), transfer: duration(path.transfer) })}
      </p>
      {prediction.holders.length === 0 ? (
        <Empty title={t("ui.web.whatif.nobody")} text={t("ui.web.whatif.nobody.text")} />
      ) : (
        <CriticalRanks run={run} prediction={prediction} />
      )}
    </>
  );
}

/** The ranks on the critical path: compute and transfer, ms per step. */
function CriticalRanks({ run, prediction }: { run: string; prediction: WhatIfAnswer }) {
  const t = useText();
  const { cluster } = useRunData();
  const width = (ms: number) => ({ width: `${(100 * ms) / prediction.step_ms_now}%` });
  const where = (rank: number): string => {
    const who = cluster.byRank.get(rank);
    return who ? fullName(who, t).split(" · ").slice(1).join(" · ") : "";
  };
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            <th class="text" scope="col">
              {t("ui.column.rank")}
            </th>
            <th scope="col">
              {t("ui.web.whatif.work")} <small>ms</small>
            </th>
            <th scope="col">
              {t("ui.column.transit")} <small>ms</small>
            </th>
            <th class="text wide" scope="col">
              <span class="unseen">{t("ui.web.whatif.holders")}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {prediction.holders.map(({ rank, work, transfer }, i) => (
            <tr key={rank} class={i === 0 ? "first" : undefined}>
              <td class="text">
                <RankLink run={run} rank={rank} /> <small>{where(rank)}</small>
              </td>
              <td>{work.toFixed(2)}</td>
              <td>{transfer.toFixed(2)}</td>
              <td class="text wide">
                <span class="inline">
                  <i class="compute" style={width(work)} />
                  <i class="exposed" style={width(transfer)} />
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Any rank, host or link, for questions the findings did not ask. */
function CustomFix({ onAdd }: { onAdd: (fix: string) => void }) {
  const t = useText();
  const [kind, setKind] = useState("rank");
  const [value, setValue] = useState("");
  const { cluster, document } = useRunData();
  const kinds = (["rank", "host", "link"] as const).filter(
    (one) =>
      one === "rank" ||
      (one === "host" ? cluster.hosts.filter((host) => host.name).length > 1 : document.tables.transports.length > 0),
  );
  const good =
    kind === "rank" ? /^\d+$/.test(value) : kind === "link" ? /^\d+-\d+$/.test(value) : /^[^\s]+$/.test(value);
  return (
    <form
      class="controls"
      onSubmit={(event) => {
        event.preventDefault();
        if (good) {
          onAdd(`${kind}:${value}`);
          setValue("");
        }
      }}
    >
      <label class="pick">
        <span>{t("ui.web.whatif.also")}</span>
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {kinds.map((one) => (
            <option key={one} value={one}>
              {t(`ui.web.whatif.kind.${one}`)}
            </option>
          ))}
        </select>
      </label>
      <input
        type="text"
        size={10}
        value={value}
        aria-label={t("ui.web.whatif.value")}
        placeholder={kind === "link" ? "3-5" : kind === "rank" ? "5" : "node1"}
        onInput={(event) => setValue(event.currentTarget.value.trim())}
      />
      <button type="submit" disabled={!good}>
        {t("ui.web.whatif.add")}
      </button>
    </form>
  );
}

/** "rank:5" → "Rank 5 as fast as its peers" */
function fixName(fix: string, t: Text): string {
  const [kind, ...rest] = fix.split(":");
  const what = kind === "link" ? rest.join(":").replace("-", " → ") : rest.join(":");
  const key = `ui.web.fix.${kind}`;
  return isKey(key) ? t(key, { what }) : fix;
}
