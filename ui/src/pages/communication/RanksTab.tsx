// Communication by rank: transfer and waiting per step, who arrives last, the links of a rank.
import { useCallback, useMemo } from "preact/hooks";
import { address, useColumns } from "../../api/client";
import type { Cluster } from "../../api/cluster";
import { readRankList } from "../../api/rankList";
import { Columns } from "../../api/columns";
import { communicationParts } from "../../api/communicationParts";
import { useRunData } from "../../api/runData";
import { RankBars, type Bar } from "../../charts/RankBars";
import { Dialog } from "../../components/Dialog";
import { HostPick, PerChoice, RankField, StagePick, StepPick, usePer } from "../../components/Filters";
import { rankCell } from "../../components/RankLink";
import { Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import type { Row } from "../../components/tableCells";
import { bytes, duration, percent, UNKNOWN } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import { Arrivals } from "../../sections/Arrivals";
import { LoadTables } from "./LoadTables";
import { NoCommunication } from "./NoCommunication";

const PARTS = [
  { color: "exposed", text: "ui.column.transit" },
  { color: "waiting", text: "ui.web.comm.waiting" },
  { color: "free", text: "ui.web.comm.neither" },
] as const;

const WAITING = PARTS.findIndex(({ color }) => color === "waiting");

export function RanksTab({ run }: { run: string }) {
  const t = useText();
  const { place, set } = useRouter();
  const { focus, cluster, document } = useRunData();
  const filters = Object.fromEntries(["step", "rank", "host", "stage"].map((name) => [name, place.query.get(name)]));
  const links = place.query.get("links");
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/communication`, { step: filters["step"] }));
  const bars = useMemo(
    () => (asked.value ? barsOf(asked.value.columns, cluster, filters) : []),
    [asked.value, cluster, place],
  );
  const tip = useCallback(
    (bar: CommunicationBar) => ({
      title: t("ui.name.rank_title", { n: bar.rank }),
      lines: [
        [t("ui.column.time"), duration(bar.time)],
        ...(bar.up.length > 1
          ? PARTS.map(({ text }, part) => [
              t(text),
              part === WAITING ? `${duration(bar.up[part])} · ${percent(bar.waitingShare)}` : duration(bar.up[part]),
            ])
          : []),
      ] as [string, string][],
    }),
    [t],
  );
  const files = !asked.value || isRecorded(asked.value.columns);
  return (
    <>
      {!files && <NoCommunication formats={document.formats} />}
      <div class="controls">
        <StepPick />
        <RankField label={t("ui.column.ranks")} />
        <HostPick />
        <StagePick />
      </div>
      <Section
        id="ranks"
        title={t(files ? "ui.web.comm.ranks.title" : "ui.web.comm.ranks.unsplit")}
        note={files ? t("ui.web.comm.ranks.note") : undefined}
      >
        {bars.length > 0 && (
          <RankBars
            bars={bars}
            colors={files ? PARTS.map(({ color }) => color) : ["exposed"]}
            marked={focus.ranks}
            tip={tip}
            label={t(files ? "ui.web.comm.ranks.title" : "ui.web.comm.ranks.unsplit")}
            onPick={(rank) => set({ links: rank }, true)}
          />
        )}
        {bars.length > 0 && files && (
          <ul class="legend">
            {PARTS.filter((_, part) => isVisible(bars, part)).map(({ color, text }) => (
              <li key={color}>
                <i class={color} />
                {t(text)}
              </li>
            ))}
          </ul>
        )}
        <ServerTable
          run={run}
          name="communication"
          filters={filters}
          sort="-blocked_time"
          caption={t(files ? "ui.web.comm.ranks.title" : "ui.web.comm.ranks.unsplit")}
          hidden={files ? [] : ["waiting", "waiting_share", "transit", "last", "blocked_time"]}
          marked={(row) => focus.ranks.has(Number(row["rank"]))}
          render={{
            rank: rankCell(run),
            bytes: (row) => <LinksButton row={row} onOpen={() => set({ links: Number(row["rank"]) }, true)} />,
          }}
        />
      </Section>
      {files && (
        <LoadTables run={run} name="arrivals">
          <Arrivals tabled={false} />
        </LoadTables>
      )}
      {links !== null && (
        <RankLinks run={run} rank={Number(links)} onClose={() => set({ links: null, dsort: null, dpage: null })} />
      )}
    </>
  );
}

function LinksButton({ row, onOpen }: { row: Row; onOpen: () => void }) {
  const t = useText();
  if (typeof row["bytes"] !== "number") return <>{UNKNOWN}</>;
  return (
    <button type="button" class="plain linked" data-links={row["rank"] ?? ""} onClick={onOpen}>
      {t("ui.web.comm.showlinks", { size: bytes(row["bytes"]) })}
    </button>
  );
}

function RankLinks({ run, rank, onClose }: { run: string; rank: number; onClose: () => void }) {
  const t = useText();
  const { place } = useRouter();
  const per = usePer();
  const title = t(`ui.web.comm.linksof.${per}`, { n: rank });
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="controls">
        <PerChoice />
      </div>
      <ServerTable
        run={run}
        name="links"
        filters={{ rank, step: place.query.get("step"), per }}
        sort="-time"
        prefix="d"
        size={15}
        caption={title}
        hidden={["scope", "group"]}
        render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }}
        empty={t("ui.web.comm.nolinks")}
      />
    </Dialog>
  );
}

/** Bytes or transfer times are only known where communication was recorded; begins and ends are known from step traces too. */
const isRecorded = (table: Columns): boolean =>
  ["transit", "bytes"].some((name) => Array.from(table.num(name)).some(Number.isFinite));

interface CommunicationBar extends Bar {
  time: number;
  waitingShare: number;
}

/** Whether a part takes more than a hairline of any bar; the parts of a bar add up only to rounding. */
const isVisible = (bars: CommunicationBar[], part: number): boolean =>
  bars.some((bar) => bar.up[part] > 0.002 * bar.time);

function barsOf(table: Columns, cluster: Cluster, filters: Record<string, string | null>): CommunicationBar[] {
  const recorded = isRecorded(table);
  const wanted = filters["rank"] ? new Set(readRankList(filters["rank"])) : null;
  const [rank, time, waiting, transit, share] = ["rank", "time", "waiting", "transit", "waiting_share"].map((name) =>
    table.num(name),
  );
  const bars: CommunicationBar[] = [];
  for (let i = 0; i < table.length; i++) {
    const who = cluster.byRank.get(rank[i]);
    if (
      (wanted && !wanted.has(rank[i])) ||
      (filters["host"] && who?.host !== filters["host"]) ||
      (filters["stage"] && who?.stage !== Number(filters["stage"]))
    )
      continue;
    bars.push({
      rank: rank[i],
      time: time[i],
      waitingShare: share[i],
      up: recorded ? communicationParts(time[i], waiting[i], transit[i]) : [time[i] || 0],
    });
  }
  return bars.sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0));
}
