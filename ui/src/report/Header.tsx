// The headline: which run, how big, how long a step takes, and how long it would.
import type { Diagnosis } from "../data/document";
import { count, duration, percent, ranges } from "../format/numbers";
import { useText, type Text } from "../i18n/text";
import { useScene } from "../views/context";

export function Header({ diagnosis }: { diagnosis: Diagnosis | null }) {
  const t = useText();
  const { document: data, cluster } = useScene();
  const name = data.source.split(/[\\/]/).filter(Boolean).at(-1) ?? "";
  const steps = diagnosis?.run.steps.length ? diagnosis.run.steps : Array.from(data.tables.steps.num("step"));
  const missing = diagnosis?.run.missingRanks ?? [];
  const facts = [
    plural(cluster.ranks.length, "facts.rank", t),
    cluster.hosts.some((host) => host.name) && plural(cluster.hosts.length, "facts.host", t),
    Object.entries(data.layout).map(([kind, size]) => `${kind}${size}`).join(" "),
    stepsText(steps, t),
    data.formats.join(", "),
  ].filter(Boolean);
  return (
    <div class="headline">
      <div>
        <h1>{name || t("masked run")}</h1>
        <p>{facts.join(" · ")}</p>
        {missing.length > 0 && <p class="missing">{t("facts.missing", { n: count(missing.length), ranks: ranges(missing) })}</p>}
        <p class="written">{t("facts.written", { when: data.written.slice(0, 16).replace("T", " ") + " UTC", version: data.version })}</p>
      </div>
      <Speed diagnosis={diagnosis} />
    </div>
  );
}

function Speed({ diagnosis }: { diagnosis: Diagnosis | null }) {
  const t = useText();
  const now = diagnosis?.run.stepMs ?? null;
  if (now === null) return null;
  const gain = diagnosis?.findings[0]?.gain;
  return (
    <dl class="speed">
      <div>
        <dd>{duration(now)}</dd>
        <dt>{t("facts.median")}</dt>
      </div>
      {gain && gain.percent > 0 && (
        <>
          <span aria-hidden="true">→</span>
          <div>
            <dd>{duration(gain.step_ms_fixed)}</dd>
            <dt>{t("headline.after")} · <b>{t("headline.faster", { percent: percent(gain.percent / 100, 1) })}</b></dt>
          </div>
        </>
      )}
    </dl>
  );
}

function stepsText(steps: number[], t: Text): string {
  if (steps.length === 0) return "";
  const text = ranges(steps, 3);
  if (!text.endsWith("…")) return t(steps.length > 1 ? "facts.steps" : "facts.step", { steps: text });
  return t("facts.span", { n: count(steps.length), low: steps[0], high: steps[steps.length - 1] });
}

function plural(n: number, key: "facts.rank" | "facts.host", t: Text): string {
  return n === 1 ? t(key) : t(`${key}s`, { n: count(n) });
}
