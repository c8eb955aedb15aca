// The headline: which run, how big, how long a step takes, and how long it would.
import { StepTimes } from "../components/StepTimes";
import type { Diagnosis, Gain } from "../api/document";
import { count, percent, ranges, speedup } from "../i18n/numbers";
import { useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";

export function RunHeader({ diagnosis }: { diagnosis: Diagnosis | null }) {
  const t = useText();
  const { document: data, cluster } = useRunData();
  const name = data.source.split(/[\\/]/).filter(Boolean).at(-1) ?? "";
  const steps = diagnosis?.run.steps.length ? diagnosis.run.steps : Array.from(data.tables.steps.num("step"));
  const missing = diagnosis?.run.missing_ranks ?? [];
  const facts = [
    t(cluster.ranks.length === 1 ? "ui.header.rank" : "ui.header.ranks", { n: count(cluster.ranks.length) }),
    cluster.hosts.some((host) => host.name) &&
      t(cluster.hosts.length === 1 ? "ui.header.host" : "ui.header.hosts", { n: count(cluster.hosts.length) }),
    Object.entries(data.layout)
      .map(([kind, size]) => `${kind}${size}`)
      .join(" "),
    stepsText(steps, t),
    data.formats.join(", "),
  ].filter(Boolean);
  return (
    <div class="headline">
      <div>
        <h1>{name || t("ui.header.unnamed")}</h1>
        <p>{facts.join(" · ")}</p>
        {missing.length > 0 && (
          <p class="missing">{t("ui.header.missing", { n: count(missing.length), ranks: ranges(missing) })}</p>
        )}
        <p class="written">
          {t("ui.header.written", {
            when: data.written.slice(0, 16).replace("T", " ") + " UTC",
            version: data.version,
          })}
        </p>
      </div>
      <Speed diagnosis={diagnosis} />
    </div>
  );
}

function Speed({ diagnosis }: { diagnosis: Diagnosis | null }) {
  const t = useText();
  const now = diagnosis?.run.step_ms.median ?? null;
  if (now === null) return null;
  const gain = diagnosis?.findings[0]?.gain;
  const gains = gain && gain.percent > 0 ? gain : null;
  return (
    <StepTimes
      before={now}
      beforeLabel={t("ui.header.median")}
      after={gains && gains.step_ms_fixed}
      afterLabel={
        gains && (
          <>
            {t("ui.header.after")} · <b>{gainText(gains, t)}</b>
          </>
        )
      }
    />
  );
}

/** "1.17× faster, 14.8 % less time" */
export const gainText = (gain: Pick<Gain, "speedup" | "percent">, t: Text): string =>
  t("ui.header.faster", {
    speedup: speedup(gain.speedup),
    percent: percent(gain.percent / 100, 1),
  });

function stepsText(steps: number[], t: Text): string {
  if (steps.length === 0) return "";
  const text = ranges(steps, 3);
  if (!text.endsWith("…")) return t(steps.length > 1 ? "ui.header.steps" : "ui.header.step", { steps: text });
  return t("ui.header.span", { n: count(steps.length), low: steps[0], high: steps[steps.length - 1] });
}
