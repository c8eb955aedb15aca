// The answer: findings ranked by gain, each with who, how sure, proof, advice and a way to see it.
import { Empty, Section } from "../components/Section";
import type { Diagnosis, Evidence, Finding } from "../api/document";
import { proofsOf, type ViewId } from "../api/focus";
import { decimalsFor, durationChange, fixed, percent, signedPercent, speedup, UNKNOWN } from "../i18n/numbers";
import { useText, type Key } from "../i18n/text";
import { useRunData } from "../api/runData";

const OPEN = 3;
const FIRST_ADVICE = 3;

interface FindingsProps {
  diagnosis: Diagnosis | null;
  onShow: (index: number, view: ViewId) => void;
}

export function Findings({ diagnosis, onShow }: FindingsProps) {
  const t = useText();
  const findings = diagnosis?.findings ?? [];
  return (
    <Section id="findings" title={t("ui.findings.title")}>
      {!diagnosis && <Empty title={t("ui.findings.absent")} text={t("ui.findings.absent.text")} />}
      {diagnosis && findings.length === 0 && <NothingFound diagnosis={diagnosis} />}
      <ol class="findings">
        {findings.map((finding, i) => (
          <FindingItem key={i} finding={finding} index={i} onShow={onShow} />
        ))}
      </ol>
    </Section>
  );
}

/** Below so many per cent of the step, what is fixable or unexplained is nothing to speak of (diagnosis/finding.py). */
const NOTABLE_PERCENT = 3;

function NothingFound({ diagnosis }: { diagnosis: Diagnosis }) {
  const t = useText();
  if (diagnosis.run.withheld.length) {
    return <Empty title={t("ui.findings.withheld")} text={t("ui.findings.withheld.text")} />;
  }
  const open = diagnosis.run.open_percent ?? 0;
  return open < NOTABLE_PERCENT ? (
    <Empty title={t("ui.findings.none")} text={t("ui.findings.none.text")} />
  ) : (
    <Empty title={t("ui.findings.open")} text={t("ui.findings.open.text", { percent: percent(open / 100) })} />
  );
}

interface FindingItemProps {
  finding: Finding;
  index: number;
  onShow: (index: number, view: ViewId) => void;
}

function FindingItem({ finding, index, onShow }: FindingItemProps) {
  const t = useText();
  const chosen = useRunData().focus.finding === index;
  return (
    <li class={`finding ${finding.severity}${chosen ? " chosen" : ""}`}>
      <details open={index < OPEN}>
        <summary>
          <span class="number" aria-label={t("ui.finding.number", { n: index + 1 })}>
            {index + 1}
          </span>
          <span class="what">
            <strong>{finding.title}</strong>
            <span class="meta">{meta(finding, t).join(" · ")}</span>
          </span>
        </summary>
        <div class="body">
          <GainBar finding={finding} />
          {finding.evidence.length > 0 && <EvidenceTable evidence={finding.evidence} />}
          {finding.advice.length > 0 && (
            <>
              <h3>{t("ui.finding.advice")}</h3>
              <Advice advice={finding.advice} />
            </>
          )}
          <p class="jumps">
            {proofsOf(finding).map((view, i) => (
              <button
                key={view}
                type="button"
                class={i === 0 ? "main" : undefined}
                data-show={view}
                onClick={() => onShow(index, view)}
              >
                {i === 0 ? t("ui.finding.show", { view: t(`ui.view.${view}` as Key) }) : t(`ui.view.${view}` as Key)}
              </button>
            ))}
            {finding.see.startsWith("kb/") && <code>{`paceline kb ${finding.id}`}</code>}
          </p>
        </div>
      </details>
    </li>
  );
}

/** The first things to try; the rest on demand. */
function Advice({ advice }: { advice: string[] }) {
  const t = useText();
  // One left over is not worth a click.
  const first = advice.length > FIRST_ADVICE + 1 ? advice.slice(0, FIRST_ADVICE) : advice;
  const rest = advice.slice(first.length);
  return (
    <>
      <ul class="advice">
        {first.map((text, i) => (
          <li key={i}>{text}</li>
        ))}
      </ul>
      {rest.length > 0 && (
        <details class="rest">
          <summary>{t("ui.finding.rest", { n: rest.length })}</summary>
          <ul class="advice">
            {rest.map((text, i) => (
              <li key={i}>{text}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function meta(finding: Finding, t: ReturnType<typeof useText>): string[] {
  const parts = [t(`ui.severity.${finding.severity}` as Key)];
  parts.push(t("ui.finding.sure", { percent: percent(finding.confidence, 0) }));
  parts.push(t(finding.chronic ? "ui.finding.chronic" : "ui.finding.once"));
  return parts;
}

function GainBar({ finding }: { finding: Finding }) {
  const t = useText();
  const gain = finding.gain;
  if (gain.percent <= 0) return <p class="note">{t("ui.finding.nogain")}</p>;
  const kept = Math.max(0, Math.min(1, gain.step_ms_fixed / gain.step_ms_now));
  return (
    <div class="gain">
      <div class="track" aria-hidden="true">
        <i style={{ width: `${kept * 100}%` }} />
      </div>
      <p>
        {t("ui.finding.gain", {
          times: durationChange(gain.step_ms_now, gain.step_ms_fixed),
          speedup: speedup(gain.speedup),
          percent: percent(gain.percent / 100, 1),
        })}
      </p>
    </div>
  );
}

function EvidenceTable({ evidence }: { evidence: Evidence[] }) {
  const t = useText();
  const compared = evidence.some((row) => row.peers !== null && !isCount(row));
  return (
    <table class="evidence">
      <thead>
        <tr>
          <th class="text" scope="col">
            {t("ui.finding.evidence")}
          </th>
          <th scope="col">{t("ui.finding.value")}</th>
          {compared && <th scope="col">{t("ui.finding.peers")}</th>}
          {compared && <th scope="col">{t("ui.finding.ratio")}</th>}
        </tr>
      </thead>
      <tbody>
        {evidence.map((row, i) => (
          <tr key={i}>
            <td class="text">{row.metric}</td>
            <td>{isCount(row) ? `${row.value} / ${figure(row.peers, row)}` : figure(row.value, row)}</td>
            {compared && <td>{isCount(row) ? "" : figure(row.peers, row)}</td>}
            {compared && <td>{against(row)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** So many of so many ranks is no comparison with peers. */
const isCount = (row: Evidence): boolean => row.key === "ranks_with_missing_data" && row.peers !== null;

function figure(value: number | null, row: Evidence): string {
  if (value === null) return UNKNOWN;
  const larger = Math.max(Math.abs(value), Math.abs(row.peers ?? 0));
  const whole = Number.isInteger(value) && Number.isInteger(row.peers ?? 0);
  const text = fixed(value, whole ? 0 : Math.min(2, decimalsFor(larger)));
  return row.unit ? `${text} ${row.unit}` : text;
}

function against({ change }: Evidence): string {
  if (change === null) return "";
  return change >= 2 ? `× ${fixed(1 + change, change >= 9 ? 0 : 1)}` : signedPercent(change);
}
