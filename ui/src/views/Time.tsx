// Where a step's time goes: the mean of all, then hosts and ranks, the furthest above their peers first.
import { Fragment } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Choice } from "../components/Choice";
import { Empty, Section } from "../components/Section";
import { PartLegend, StackedBar } from "../components/StackedBar";
import { knowsPhasesOnly, meanParts, type Share } from "../data/cluster";
import { duration, signedPercent } from "../format/numbers";
import { useText } from "../i18n/text";
import { useScene } from "./context";
import { fullName, hostName } from "./names";

/** Up to here every rank gets a row at once; above, hosts do, and open. */
const ALL_ROWS = 64;
const FIRST_HOSTS = 16;
/** Hosts of culprits that open by themselves. */
const OPEN_HOSTS = 3;
const FIRST_RANKS = 32;

export function Time() {
  const t = useText();
  const { shares } = useScene();
  const [rows, setRows] = useState<"host" | "rank">(shares.length > ALL_ROWS ? "host" : "rank");
  const [sort, setSort] = useState<"worst" | "order">(shares.length > ALL_ROWS ? "worst" : "order");
  const mean = useMemo(() => meanParts(shares), [shares]);
  if (shares.length === 0) {
    return <Section id="time" title={t("time.title")}><Empty title={t("time.empty")} text={t("time.empty.text")} /></Section>;
  }
  const scale = shares.reduce((most, share) => Math.max(most, share.step), mean.step);
  return (
    <Section id="time" title={t("time.title")} note={t(knowsPhasesOnly(mean.parts) ? "time.phases" : "time.note")}>
      <div class="whole">
        <StackedBar parts={mean.parts} scale={mean.step} title={t("time.whole")} />
        <PartLegend parts={mean.parts} total={mean.step} />
      </div>
      <div class="controls">
        <Choice label={t("time.group")} value={rows} onChange={setRows}
          options={[{ value: "host", label: t("time.byhost") }, { value: "rank", label: t("time.byrank") }]} />
        <Choice label={t("time.sort")} value={sort} onChange={setSort}
          options={[{ value: "worst", label: t("time.worst") }, { value: "order", label: t("time.order") }]} />
      </div>
      <div class="bars" role="table" aria-label={t("time.title")}>
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
      <span role="columnheader">{t("time.rank")}</span>
      <span role="columnheader"><span class="unseen">{t("time.title")}</span></span>
      <span role="columnheader">{t("time.step")}</span>
      <span role="columnheader">{t("time.own")}</span>
      <span role="columnheader">{t("time.excess")}</span>
    </div>
  );
}

interface RowsProps {
  sort: "worst" | "order";
  scale: number;
}

function HostRows({ sort, scale }: RowsProps) {
  const t = useText();
  const { cluster, shares, focus } = useScene();
  const [more, setMore] = useState(false);
  const hosts = useMemo(() => {
    const grouped = cluster.hosts.map((host) => {
      const members = shares.filter((share) => share.rank.hostIndex === host.index);
      return { host, members, worst: Math.max(-1, ...members.map((share) => share.excess)),
        red: members.some((share) => focus.ranks.has(share.rank.rank)) };
    }).filter((group) => group.members.length > 0);
    return sort === "worst" ? grouped.sort((a, b) => Number(b.red) - Number(a.red) || b.worst - a.worst) : grouped;
  }, [cluster, shares, focus, sort]);
  const shown = more ? hosts : hosts.slice(0, FIRST_HOSTS);
  return (
    <>
      {shown.map((group, i) => (
        <HostRow key={group.host.name} name={group.host.name} members={group.members} scale={scale}
          red={group.red} startOpen={sort === "worst" && (i === 0 || (group.red && i < OPEN_HOSTS))} />
      ))}
      {hosts.length > shown.length && (
        <button type="button" class="more" onClick={() => setMore(true)}>
          {t("time.more", { n: hosts.length - shown.length })}
        </button>
      )}
    </>
  );
}

interface HostRowProps {
  name: string;
  members: Share[];
  scale: number;
  red: boolean;
  startOpen: boolean;
}

function HostRow({ name, members, scale, red, startOpen }: HostRowProps) {
  const t = useText();
  const [choice, setOpen] = useState<boolean | null>(null);
  const open = choice ?? startOpen;
  const mean = meanParts(members);
  const worst = members.reduce((high, share) => (share.excess > high.excess ? share : high), members[0]);
  const own = members.reduce((sum, share) => sum + share.own, 0) / members.length;
  const label = hostName(name, t);
  return (
    <>
      <div class={`row host${red ? " red" : ""}`} role="row">
        <span role="rowheader">
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            {label} <small>{members.length}</small>
          </button>
        </span>
        <div role="cell"><StackedBar parts={mean.parts} scale={scale} title={`${label}, ${t("time.mean", { n: members.length })}`} /></div>
        <span role="cell">{duration(mean.step)}</span>
        <span role="cell">{duration(own)}</span>
        <span role="cell">{signedPercent(worst.excess)} <small>{t("rank", { n: worst.rank.rank })}</small></span>
      </div>
      {open && members.map((share) => <RankRow key={share.rank.rank} share={share} scale={scale} />)}
    </>
  );
}

function RankRows({ sort, scale }: RowsProps) {
  const t = useText();
  const { shares, cluster } = useScene();
  const [more, setMore] = useState(false);
  const sorted = useMemo(() => {
    if (sort === "worst") return [...shares].sort((a, b) => b.excess - a.excess);
    return [...shares].sort((a, b) => (cluster.place.get(a.rank.rank) ?? 0) - (cluster.place.get(b.rank.rank) ?? 0));
  }, [shares, sort, cluster]);
  const shown = more || sorted.length <= ALL_ROWS ? sorted : sorted.slice(0, FIRST_RANKS);
  return (
    <>
      {shown.map((share, i) => (
        <Fragment key={share.rank.rank}>
          {sort === "order" && shown[i - 1]?.rank.hostIndex !== share.rank.hostIndex && (
            <div class="row hostname" role="row"><span role="rowheader">{hostName(share.rank.host, t)}</span></div>
          )}
          <RankRow share={share} scale={scale} />
        </Fragment>
      ))}
      {sorted.length > shown.length && (
        <button type="button" class="more" onClick={() => setMore(true)}>
          {t("time.more", { n: sorted.length - shown.length })}
        </button>
      )}
    </>
  );
}

function RankRow({ share, scale }: { share: Share; scale: number }) {
  const t = useText();
  const { focus } = useScene();
  const red = focus.ranks.has(share.rank.rank);
  return (
    <div class={`row rank${red ? " culprit" : ""}`} role="row" data-rank={share.rank.rank}>
      <span role="rowheader">
        {red && <span aria-hidden="true">▶ </span>}
        {t("rank", { n: share.rank.rank })}
        {share.rank.stage !== null && <small> {t("stage", { n: share.rank.stage })}</small>}
      </span>
      <div role="cell"><StackedBar parts={share.parts} scale={scale} title={fullName(share.rank, t)} /></div>
      <span role="cell">{duration(share.step)}</span>
      <span role="cell">{duration(share.own)}</span>
      <span role="cell">{signedPercent(share.excess)}</span>
    </div>
  );
}
