// Where a step's time goes: the mean of all, then hosts and ranks, the furthest above their peers first.
import { Fragment } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Choice } from "../components/Choice";
import { Empty, Section } from "../components/Section";
import { PartLegend, StackedBar } from "../components/StackedBar";
import { byExcess, knowsPhasesOnly, readHostShares, readMeanStep, type HostShare, type Share } from "../api/cluster";
import { duration, signedPercent } from "../i18n/numbers";
import { useText } from "../i18n/text";
import { useRunData } from "../api/runData";
import { fullName, hostName } from "../i18n/rankNames";

/** Up to here every rank gets a row at once; above, hosts do, and open. */
const ALL_ROWS = 64;
const FIRST_HOSTS = 16;
/** Hosts of culprits that open by themselves. */
const OPEN_HOSTS = 3;
const FIRST_RANKS = 32;

export function StepBreakdown() {
  const t = useText();
  const { document, shares } = useRunData();
  const [rows, setRows] = useState<"host" | "rank">(shares.length > ALL_ROWS ? "host" : "rank");
  const [sort, setSort] = useState<"worst" | "order">(shares.length > ALL_ROWS ? "worst" : "order");
  const mean = useMemo(() => readMeanStep(document.tables.cluster_breakdown), [document]);
  if (shares.length === 0 || !mean) {
    return (
      <Section id="time" title={t("ui.time.title")}>
        <Empty title={t("ui.time.empty")} text={t("ui.time.empty.text")} />
      </Section>
    );
  }
  const scale = shares.reduce((most, share) => Math.max(most, share.duration), mean.duration);
  return (
    <Section
      id="time"
      title={t("ui.time.title")}
      note={t(knowsPhasesOnly(mean.parts) ? "ui.time.phases" : "ui.time.note")}
    >
      <div class="whole">
        <StackedBar parts={mean.parts} scale={mean.duration} title={t("ui.time.whole")} />
        <PartLegend parts={mean.parts} total={mean.duration} />
      </div>
      <div class="controls">
        <Choice
          label={t("ui.time.group")}
          value={rows}
          onChange={setRows}
          options={[
            { value: "host", label: t("ui.time.byhost") },
            { value: "rank", label: t("ui.time.byrank") },
          ]}
        />
        <Choice
          label={t("ui.time.sort")}
          value={sort}
          onChange={setSort}
          options={[
            { value: "worst", label: t("ui.time.worst") },
            { value: "order", label: t("ui.time.order") },
          ]}
        />
      </div>
      <div class="bars" role="table" aria-label={t("ui.time.title")}>
        <BarHead />
        {rows === "host" ? <HostRows sort={sort} scale={scale} /> : <RankRows sort={sort} scale={scale} />}
      </div>
    </Section>
  );
}

function BarHead() {
  const t = useText();
  return (
    <div class="row head" role="row">
      <span role="columnheader">{t("ui.column.rank")}</span>
      <span role="columnheader">
        <span class="unseen">{t("ui.time.title")}</span>
      </span>
      <span role="columnheader">{t("ui.column.duration")}</span>
      <span role="columnheader">{t("ui.column.self_time")}</span>
      <span role="columnheader">{t("ui.column.excess")}</span>
    </div>
  );
}

interface RowsProps {
  sort: "worst" | "order";
  scale: number;
}

function HostRows({ sort, scale }: RowsProps) {
  const t = useText();
  const { document, shares, focus } = useRunData();
  const [more, setMore] = useState(false);
  const hosts = useMemo(() => {
    const grouped = readHostShares(document.tables.host_breakdown).map((host) => {
      const members = shares.filter((share) => share.rank.host === host.host);
      return { host, members, red: members.some((share) => focus.ranks.has(share.rank.rank)) };
    });
    const worst = (group: (typeof grouped)[number]) => ({ excess: group.host.worstExcess });
    return sort === "worst"
      ? grouped.sort((a, b) => Number(b.red) - Number(a.red) || byExcess(worst(a), worst(b)))
      : grouped;
  }, [document, shares, focus, sort]);
  const shown = more ? hosts : hosts.slice(0, FIRST_HOSTS);
  return (
    <>
      {shown.map((group, i) => (
        <HostRow
          key={group.host.host}
          host={group.host}
          members={group.members}
          scale={scale}
          red={group.red}
          startOpen={sort === "worst" && (i === 0 || (group.red && i < OPEN_HOSTS))}
        />
      ))}
      {hosts.length > shown.length && (
        <div role="row">
          <div role="cell">
            <button type="button" class="more" onClick={() => setMore(true)}>
              {t("ui.time.more", { n: hosts.length - shown.length })}
            </button>
          </div>
        </div>
      )}
    </>
  );
}

interface HostRowProps {
  host: HostShare;
  members: Share[];
  scale: number;
  red: boolean;
  startOpen: boolean;
}

function HostRow({ host, members, scale, red, startOpen }: HostRowProps) {
  const t = useText();
  const [choice, setOpen] = useState<boolean | null>(null);
  const open = choice ?? startOpen;
  const label = hostName(host.host, t);
  return (
    <>
      <div class={`row host${red ? " red" : ""}`} role="row">
        <span role="rowheader">
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            {label} <small>{members.length}</small>
          </button>
        </span>
        <div role="cell">
          <StackedBar
            parts={host.parts}
            scale={scale}
            title={`${label}, ${t("ui.time.mean", { n: members.length })}`}
          />
        </div>
        <span role="cell">{duration(host.duration)}</span>
        <span role="cell">{duration(host.selfTime)}</span>
        <span role="cell">
          {signedPercent(host.excess)} <small>{t("ui.name.rank", { n: host.medianRank })}</small>
        </span>
      </div>
      {open && members.map((share) => <RankRow key={share.rank.rank} share={share} scale={scale} />)}
    </>
  );
}

function RankRows({ sort, scale }: RowsProps) {
  const t = useText();
  const { shares, cluster } = useRunData();
  const [more, setMore] = useState(false);
  const sorted = useMemo(() => {
    if (sort === "worst") return [...shares].sort(byExcess);
    return [...shares].sort((a, b) => (cluster.place.get(a.rank.rank) ?? 0) - (cluster.place.get(b.rank.rank) ?? 0));
  }, [shares, sort, cluster]);
  const shown = more || sorted.length <= ALL_ROWS ? sorted : sorted.slice(0, FIRST_RANKS);
  return (
    <>
      {shown.map((share, i) => (
        <Fragment key={share.rank.rank}>
          {sort === "order" && shown[i - 1]?.rank.hostIndex !== share.rank.hostIndex && (
            <div class="row hostname" role="row">
              <span role="rowheader">{hostName(share.rank.host, t)}</span>
            </div>
          )}
          <RankRow share={share} scale={scale} />
        </Fragment>
      ))}
      {sorted.length > shown.length && (
        <div role="row">
          <div role="cell">
            <button type="button" class="more" onClick={() => setMore(true)}>
              {t("ui.time.more", { n: sorted.length - shown.length })}
            </button>
          </div>
        </div>
      )}
    </>
  );
}

function RankRow({ share, scale }: { share: Share; scale: number }) {
  const t = useText();
  const { focus } = useRunData();
  const red = focus.ranks.has(share.rank.rank);
  return (
    <div class={`row rank${red ? " culprit" : ""}`} role="row" data-rank={share.rank.rank}>
      <span role="rowheader">
        {red && <span aria-hidden="true">▶ </span>}
        {t("ui.name.rank", { n: share.rank.rank })}
        {share.rank.stage !== null && <small> {t("ui.name.stage", { n: share.rank.stage })}</small>}
      </span>
      <div role="cell">
        <StackedBar parts={share.parts} scale={scale} title={fullName(share.rank, t)} />
      </div>
      <span role="cell">{duration(share.duration)}</span>
      <span role="cell">{duration(share.selfTime)}</span>
      <span role="cell">{signedPercent(share.excess)}</span>
    </div>
  );
}
