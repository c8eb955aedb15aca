// Communication: by rank, by link, as a matrix, by collective, by packet size.
import { useCallback, useMemo } from "preact/hooks";
import { RankBars, type Bar } from "../../charts/RankBars";
import { Section } from "../../components/Section";
import { binaryBytes, bytes, duration, percent, UNKNOWN } from "../../format/numbers";
import { useText } from "../../i18n/text";
import { Arrivals } from "../../views/Arrivals";
import { Collectives as CollectiveClasses, kindName } from "../../views/Collectives";
import { useScene } from "../../views/context";
import { Operators } from "../../views/Operators";
import { Packets as PacketView } from "../../views/Packets";
import type { Cluster } from "../../data/cluster";
import type { Columns } from "../../data/columns";
import { linkKey } from "../../data/focus";
import { references } from "../../data/links";
import { Transports } from "../../views/Transports";
import { address, useColumns, useJson } from "../api";
import { Dialog } from "../parts/Dialog";
import { HostPick, Pick, StagePick, StepPick, Tabs, TextField, Title } from "../parts/Filters";
import { LinkMatrix } from "../parts/LinkMatrix";
import { Part } from "../parts/Part";
import { rankCell, RankLink } from "../parts/RankLink";
import type { Row } from "../parts/cells";
import { ServerTable } from "../parts/ServerTable";
import { useRouter, useSetting } from "../router";
import { useWords } from "../words";

const TABS = ["ranks", "links", "matrix", "collectives", "packets"] as const;

export function Communication({ run }: { run: string }) {
  const w = useWords();
  const [tab] = useSetting("tab", "ranks");
  return (
    <>
      <Title title={w("comm.title")} />
      <Tabs name="tab" label={w("comm.title")} options={TABS.map((one) => [one, w(`comm.${one}`)] as const)} />
      {tab === "ranks" && <Ranks run={run} />}
      {tab === "links" && <LinkTable run={run} />}
      {tab === "matrix" && <LinkMatrix run={run} />}
      {tab === "collectives" && <Collectives run={run} />}
      {tab === "packets" && <Packets run={run} />}
    </>
  );
}

function Ranks({ run }: { run: string }) {
  const w = useWords();
  const t = useText();
  const { place, set } = useRouter();
  const { focus, cluster } = useScene();
  const filters = Object.fromEntries(["step", "host", "stage"].map((name) => [name, place.query.get(name)]));
  const links = place.query.get("links");
  const asked = useColumns(address(`runs/${encodeURIComponent(run)}/charts/communication`, { step: filters["step"] }));
  const bars = useMemo(() => (asked.value ? barsOf(asked.value.columns, cluster, filters) : []), [asked.value, cluster, place]);
  const tip = useCallback((bar: Bar) => ({
    title: t("Rank", { n: bar.rank }),
    lines: [[w("col.time"), duration(bar.up[0] + bar.up[1])], [w("col.wait"), `${duration(bar.up[1])} · ${percent(bar.up[1] / (bar.up[0] + bar.up[1]))}`]] as [string, string][],
  }), [t, w]);
  return (
    <>
      <div class="controls"><StepPick /><HostPick /><StagePick /></div>
      <Section id="ranks" title={w("comm.ranks.title")} note={w("comm.ranks.note")}>
        {bars.length > 0 && <RankBars bars={bars} colors={["exposed", "waiting"]} marked={focus.ranks} tip={tip} label={w("comm.ranks.title")}
          onPick={(rank) => set({ links: rank }, true)} />}
        {bars.length > 0 && (
          <ul class="legend"><li><i class="exposed" />{w("comm.moving")}</li><li><i class="waiting" />{w("comm.waiting")}</li></ul>
        )}
        <ServerTable run={run} name="communication" filters={filters} sort="-held" caption={w("comm.ranks.title")} marked={(row) => focus.ranks.has(Number(row["rank"]))}
          render={{
            rank: rankCell(run),
            bytes: (row) => <LinksButton row={row} onOpen={() => set({ links: Number(row["rank"]) }, true)} />,
          }} />
      </Section>
      <Part run={run} name="arrivals"><Arrivals tabled={false} /></Part>
      {links !== null && <RankLinks run={run} rank={Number(links)} onClose={() => set({ links: null, dsort: null, dpage: null })} />}
    </>
  );
}

function LinksButton({ row, onOpen }: { row: Row; onOpen: () => void }) {
  const w = useWords();
  if (typeof row["bytes"] !== "number") return <>{UNKNOWN}</>;
  return <button type="button" class="plain linked" data-links={row["rank"] ?? ""} onClick={onOpen}>{w("comm.showlinks", { size: bytes(row["bytes"]) })}</button>;
}

function RankLinks({ run, rank, onClose }: { run: string; rank: number; onClose: () => void }) {
  const w = useWords();
  const { place } = useRouter();
  return (
    <Dialog title={w("comm.linksof", { n: rank })} onClose={onClose}>
      <ServerTable run={run} name="links" filters={{ rank, step: place.query.get("step") }} sort="-time" prefix="d" size={15} caption={w("comm.linksof", { n: rank })}
        hidden={["scope"]} render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }} empty={w("comm.nolinks")} />
    </Dialog>
  );
}

function LinkTable({ run }: { run: string }) {
  const w = useWords();
  const { place } = useRouter();
  const { document, focus } = useScene();
  const filters = Object.fromEntries(["step", "src", "dst", "transport", "host"].map((name) => [name, place.query.get(name)]));
  const transports = document.tables.transports.text("transport").filter((name): name is string => name !== null && name !== "LOCAL");
  const speeds = useMemo(() => references(document.tables.transports, document.nominal), [document]);
  return (
    <>
      <div class="controls">
        <TextField name="src" label={w("col.src")} numeric /><TextField name="dst" label={w("col.dst")} numeric />
        <Pick name="transport" label={w("col.transport")} all={w("filter.all")} options={transports.map((name) => [name, name] as const)} />
        <HostPick /><StepPick all />
      </div>
      <Section id="links" title={w("comm.links.title")} note={w("comm.links.note")}>
        <ServerTable run={run} name="links" filters={filters} sort="ratio" caption={w("comm.links.title")} hidden={["scope"]}
          marked={(row) => focus.links.has(linkKey(Number(row["src"]), Number(row["dst"])))}
          render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }} empty={w("comm.nolinks")} />
      </Section>
      {document.tables.transports.length > 0 && <section><Transports speeds={speeds} /></section>}
    </>
  );
}

function Collectives({ run }: { run: string }) {
  const w = useWords();
  const t = useText();
  const { place, set } = useRouter();
  const { document, focus } = useScene();
  const filters = Object.fromEntries(["step", "op", "rank", "q"].map((name) => [name, place.query.get(name)]));
  const ops = [...new Set(document.tables.collectives.text("op").filter((op): op is string => op !== null && op !== "send" && op !== "receive"))];
  const meeting = place.query.get("meeting");
  return (
    <>
      <CollectiveClasses />
      <Section id="meetings" title={w("comm.meetings")} note={w("comm.meetings.note")}>
        <div class="controls">
          <StepPick all />
          <Pick name="op" label={w("col.op")} all={w("filter.all")} options={ops.map((op) => [op, op] as const)} />
          <TextField name="rank" label={w("col.last_rank")} numeric /><TextField name="q" label={w("col.name")} />
        </div>
        <ServerTable run={run} name="collectives" filters={filters} sort="-waited" caption={w("comm.meetings")} hidden={["group", "sequence"]} always={["name"]}
          marked={(row) => focus.ranks.has(Number(row["last_rank"]))} empty={w("comm.nomeetings")}
          render={{
            kind: (row) => kindName(String(row["kind"] ?? ""), t),
            name: (row) => <button type="button" class="plain linked" onClick={() => set({ meeting: `${row["op"]}|${row["sequence"]}|${row["group"]}` }, true)}>{row["name"] ?? row["op"]}</button>,
            last_rank: (row) => <RankLink run={run} rank={Number(row["last_rank"])} />,
          }} />
      </Section>
      <Part run={run} name="operators"><Operators /></Part>
      {meeting && <Meeting run={run} meeting={meeting} onClose={() => set({ meeting: null, dsort: null, dpage: null })} />}
    </>
  );
}

interface ArrivalsAnswer {
  columns: { name: string }[];
  rows: number[][];
}

/** One collective: who came when, who waited how long. */
function Meeting({ run, meeting, onClose }: { run: string; meeting: string; onClose: () => void }) {
  const w = useWords();
  const t = useText();
  const { cluster } = useScene();
  const [op, sequence, ...group] = meeting.split("|");
  const filters = { op, sequence, group: group.join("|") };
  const asked = useJson<ArrivalsAnswer>(address(`runs/${encodeURIComponent(run)}/tables/arrivals`, { ...filters, limit: 500 }));
  const rows = asked.value?.rows ?? [];
  const late = asked.value?.columns.findIndex((column) => column.name === "late") ?? 0;
  const waited = asked.value?.columns.findIndex((column) => column.name === "waited") ?? 0;
  const bars = rows.map((row): Bar => ({ rank: row[0], up: [row[late]], down: row[waited] }))
    .sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0));
  const last = new Set(rows.length ? [rows.reduce((most, row) => (row[late] > most[late] ? row : most))[0]] : []);
  const tip = (bar: Bar) => ({ title: t("Rank", { n: bar.rank }), lines: [[w("col.late"), duration(bar.up[0])], [w("col.waited"), duration(bar.down ?? 0)]] as [string, string][] });
  return (
    <Dialog title={w("comm.meeting", { op, n: rows.length })} onClose={onClose}>
      <p class="note">{w("comm.meeting.note")}</p>
      {bars.length > 0 && <RankBars bars={bars} colors={["waiting-deep"]} downColor="waiting" marked={last} tip={tip} label={w("comm.meeting", { op, n: rows.length })} height={180} />}
      <ServerTable run={run} name="arrivals" filters={filters} sort="-late" prefix="d" size={10} caption={w("comm.meeting", { op, n: rows.length })} render={{ rank: rankCell(run) }}
        marked={(row) => last.has(Number(row["rank"]))} />
    </Dialog>
  );
}

function Packets({ run }: { run: string }) {
  const w = useWords();
  const { place } = useRouter();
  const { document } = useScene();
  const filters = Object.fromEntries(["step", "rank", "transport"].map((name) => [name, place.query.get(name)]));
  const transports = [...new Set(document.tables.packets.text("transport").filter((name): name is string => name !== null))];
  return (
    <>
      <PacketView />
      {document.tables.packets.length > 0 && (
        <Section id="sizes" title={w("comm.sizes")}>
          <div class="controls">
            <StepPick all /><TextField name="rank" label={w("col.rank")} numeric />
            <Pick name="transport" label={w("col.transport")} all={w("filter.all")} options={transports.map((name) => [name, name] as const)} />
          </div>
          <ServerTable run={run} name="packets" filters={filters} sort="-time" caption={w("comm.sizes")}
            render={{ packet_bytes: (row) => binaryBytes(Number(row["packet_bytes"])) }} />
        </Section>
      )}
    </>
  );
}

function barsOf(table: Columns, cluster: Cluster, filters: Record<string, string | null>): Bar[] {
  const [rank, time, wait] = ["rank", "time", "wait"].map((name) => table.num(name));
  const bars: Bar[] = [];
  for (let i = 0; i < table.length; i++) {
    const who = cluster.byRank.get(rank[i]);
    if ((filters["host"] && who?.host !== filters["host"]) || (filters["stage"] && who?.stage !== Number(filters["stage"]))) continue;
    const [all, waiting] = [time[i] || 0, wait[i] || 0];
    bars.push({ rank: rank[i], up: [Math.max(0, all - waiting), Math.min(all, waiting)] });
  }
  return bars.sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0));
}
