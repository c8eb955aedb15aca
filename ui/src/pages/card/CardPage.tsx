// One card: its step, its findings, and everything recorded of it in tabs.
import { address, useJson } from "../../api/client";
import { useRunData } from "../../api/runData";
import { Tabs } from "../../components/Filters";
import { Link } from "../../components/Link";
import { ProblemMessage } from "../../components/ProblemMessage";
import { PartLegend, StackedBar } from "../../components/StackedBar";
import { fullName } from "../../i18n/rankNames";
import { runAddress, useSetting } from "../../components/router";
import { duration, percent, signedPercent } from "../../i18n/numbers";
import { useLanguage, useText } from "../../i18n/text";
import { CommunicationTab } from "./CommunicationTab";
import { GlanceTab } from "./GlanceTab";
import { HostTab } from "./HostTab";
import { InputTab } from "./InputTab";
import { MemoryTab } from "./MemoryTab";
import { OperatorsTab } from "./OperatorsTab";
import { StepsTab } from "./StepsTab";
import type { CardInfo } from "./cardInfo";

const TABS = ["glance", "steps", "operators", "communication", "input", "host", "memory"] as const;

export function CardPage({ run, rank }: { run: string; rank: number }) {
  const t = useText();
  const language = useLanguage();
  const { cluster, shares } = useRunData();
  const [tab] = useSetting("tab", "glance");
  const asked = useJson<CardInfo>(address(`runs/${encodeURIComponent(run)}/cards/${rank}`, { lang: language }));
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  const card = asked.value;
  const who = cluster.byRank.get(rank);
  const share = shares.find((one) => one.rank.rank === rank);
  const place = cluster.place.get(rank) ?? 0;
  const [before, after] = [cluster.order[place - 1], cluster.order[place + 1]];
  return (
    <>
      <div class="headline">
        <div>
          <h1>{who ? fullName(who, t) : t("ui.name.rank_title", { n: rank })}</h1>
          <p>
            {before && (
              <Link to={runAddress(run, `cards/${before.rank}`, { tab })}>
                ← {t("ui.name.rank", { n: before.rank })}
              </Link>
            )}{" "}
            {after && (
              <Link to={runAddress(run, `cards/${after.rank}`, { tab })}>{t("ui.name.rank", { n: after.rank })} →</Link>
            )}
            {" · "}
            <Link to={runAddress(run, "timeline", { ranks: rank })}>{t("ui.web.card.timeline")}</Link>
            {card?.path && card.path !== "." && (
              <>
                {" "}
                · <code>{card.path}</code>
              </>
            )}
          </p>
          {card?.note && <p class="missing">{card.note}</p>}
        </div>
        {share && (
          <dl class="speed">
            <div>
              <dd>{duration(share.selfTime)}</dd>
              <dt>
                {t("ui.web.card.self_time")} · <b>{signedPercent(share.excess)}</b> {t("ui.column.excess")}
              </dt>
            </div>
          </dl>
        )}
      </div>
      {card && card.findings.length > 0 && (
        <ul class={card.findings.some((finding) => finding.gain_percent > 0) ? "card-findings" : "card-findings quiet"}>
          {card.findings.map((finding) => (
            <li key={finding.number}>
              <Link to={runAddress(run, "overview", { finding: finding.number })}>
                {t("ui.finding.number", { n: finding.number })}
              </Link>
              {t("ui.finding.title", { title: finding.title })}
              {finding.gain_percent > 0 && (
                <small> {t("ui.web.runs.gain", { percent: percent(finding.gain_percent / 100, 1) })}</small>
              )}
            </li>
          ))}
        </ul>
      )}
      {share && (
        <div class="whole">
          <StackedBar parts={share.parts} scale={share.duration} title={t("ui.name.rank_title", { n: rank })} />
          <PartLegend parts={share.parts} total={share.duration} />
        </div>
      )}
      <Tabs
        name="tab"
        label={t("ui.web.card.parts")}
        options={TABS.map((one) => [one, t(`ui.web.card.tab.${one}`)] as const)}
      />
      {card && tab === "glance" && <GlanceTab run={run} card={card} />}
      {card && tab === "steps" && <StepsTab run={run} card={card} />}
      {card && tab === "operators" && <OperatorsTab run={run} card={card} />}
      {card && tab === "communication" && <CommunicationTab run={run} card={card} />}
      {card && tab === "input" && <InputTab run={run} card={card} />}
      {card && tab === "host" && <HostTab run={run} card={card} />}
      {card && tab === "memory" && <MemoryTab run={run} card={card} />}
    </>
  );
}
