// Where the mean step is lost: a waterfall from the step now down to what computing needs.
import { Section } from "../components/Section";
import type { Diagnosis } from "../api/document";
import type { LossPart } from "../api/types";
import { duration, percent } from "../i18n/numbers";
import { useText, type Key } from "../i18n/text";

/** Parts that would read 0.0 ms are left out, so that what is shown adds up. */
const LEAST_MS = 0.05;

interface Row {
  name: string;
  kind: string;
  ms: number;
  /** Where the bar begins. */
  from: number;
  alone: number | null;
}

export function LossWaterfall({ diagnosis }: { diagnosis: Diagnosis | null }) {
  const t = useText();
  const now = diagnosis?.run.mean_step_ms ?? null;
  if (!diagnosis || !now || !diagnosis.run.loss.length) return null;
  const name = (part: LossPart): string =>
    part.finding === null ? t(`ui.loss.${part.cause}` as Key) : `${part.finding + 1} · ${part.cause}`;
  const rows: Row[] = [{ name: t("ui.loss.now"), kind: "now", ms: now, from: 0, alone: null }];
  let level = now;
  for (const part of diagnosis.run.loss) {
    level -= part.ms;
    if (Math.abs(part.ms) < LEAST_MS) continue;
    const kind = part.finding === null ? part.cause : "culprit";
    rows.push({ name: name(part), kind, ms: part.ms, from: Math.min(now, Math.max(0, level)), alone: part.alone_ms });
  }
  rows.push({ name: t("ui.loss.best"), kind: "compute", ms: diagnosis.run.best_step_ms ?? 0, from: 0, alone: null });
  return (
    <Section id="loss" title={t("ui.loss.title")} note={t("ui.loss.note")}>
      <div class="waterfall" role="table" aria-label={t("ui.loss.title")}>
        <div class="row head" role="row">
          <span role="columnheader">{t("ui.loss.cause")}</span>
          <span role="columnheader">ms</span>
          <span role="columnheader">{t("ui.loss.share")}</span>
          <span role="columnheader">{t("ui.loss.alone")}</span>
          <span role="columnheader">
            <span class="unseen">{t("ui.loss.title")}</span>
          </span>
        </div>
        {rows.map((row) => (
          <div key={row.name} class="row" role="row">
            <span role="cell">{row.name}</span>
            <span role="cell" class="number">
              {duration(row.ms)}
            </span>
            <span role="cell" class="number">
              {percent(row.ms / now)}
            </span>
            <span role="cell" class="number">
              {row.alone === null ? "" : duration(row.alone)}
            </span>
            <span role="cell" class="track" aria-hidden="true">
              <i
                class={row.kind}
                style={{
                  marginLeft: `${(100 * row.from) / now}%`,
                  width: `${(100 * Math.min(now - row.from, Math.max(0, row.ms))) / now}%`,
                }}
              />
            </span>
          </div>
        ))}
      </div>
    </Section>
  );
}
