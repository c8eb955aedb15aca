// Who comes last and holds the others up, and who waits.
import { useCallback, useMemo } from "preact/hooks";
import { RankBars, type Bar } from "../charts/RankBars";
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { duration, fixed, msColumn, percent } from "../i18n/numbers";
import { useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";

interface Row {
  rank: number;
  host: string;
  collectives: number;
  last: number;
  chance: number;
  blockedTime: number;
  waited: number;
}

const BLOCKED = ["waiting-deep"];

/** `tabled`: with a table, where the page has no other that tells the same. */
export function Arrivals({ tabled = true }: { tabled?: boolean }) {
  const t = useText();
  const { document, cluster, focus } = useRunData();
  const table = document.tables.arrivals;
  const rows = useMemo(() => {
    const [rank, instances, last, chance, blocked, waited] = [
      "rank",
      "instances",
      "last_share",
      "expected_share",
      "blocked_time",
      "waited",
    ].map((name) => table.num(name));
    return Array.from({ length: table.length }, (_, i): Row => ({
      rank: rank[i],
      host: cluster.byRank.get(rank[i])?.host ?? "",
      collectives: instances[i],
      last: last[i],
      chance: chance[i],
      blockedTime: blocked[i],
      waited: waited[i],
    }));
  }, [table, cluster]);
  const byRank = useMemo(() => new Map(rows.map((row) => [row.rank, row])), [rows]);
  const bars = useMemo(
    () =>
      rows
        .map((row): Bar => ({ rank: row.rank, up: [row.blockedTime], down: row.waited }))
        .sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0)),
    [rows, cluster],
  );
  const tip = useCallback(
    (bar: Bar) => {
      const row = byRank.get(bar.rank);
      return {
        title: `${t("ui.name.rank_title", { n: bar.rank })} · ${row?.host ?? ""}`,
        lines: row ? describe(row, t) : [],
      };
    },
    [byRank, t],
  );
  return (
    <Section id="arrivals" title={t("ui.arrivals.title")} note={rows.length ? t("ui.arrivals.note") : undefined}>
      {rows.length === 0 && <Empty title={t("ui.arrivals.empty")} text={t("ui.arrivals.empty.text")} />}
      {rows.length > 0 && (
        <>
          <h3>{t("ui.arrivals.chart")}</h3>
          <RankBars
            bars={bars}
            colors={BLOCKED}
            downColor="waiting"
            marked={focus.ranks}
            tip={tip}
            label={t("ui.arrivals.label", { n: bars.length })}
          />
          {tabled && (
            <DataTable
              columns={columns(rows, t)}
              rows={rows}
              sortedBy={5}
              most={10}
              caption={t("ui.arrivals.title")}
              marked={(row) => focus.ranks.has(row.rank)}
            />
          )}
        </>
      )}
    </Section>
  );
}

function describe(row: Row, t: Text): [string, string][] {
  return [
    [t("ui.column.last"), `${percent(row.last)} (${t("ui.arrivals.chance")} ${percent(row.chance)})`],
    [t("ui.column.blocked_time"), `${duration(row.blockedTime)} ${t("ui.arrivals.perstep")}`],
    [t("ui.arrivals.waited"), `${duration(row.waited)} ${t("ui.arrivals.perstep")}`],
  ];
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const blocked = msColumn(rows.map((row) => row.blockedTime));
  const waited = msColumn(rows.map((row) => row.waited));
  return [
    { name: t("ui.column.rank"), value: (row) => row.rank },
    { name: t("ui.column.host"), text: true, value: (row) => row.host },
    { name: t("ui.arrivals.collectives"), value: (row) => row.collectives, show: (row) => fixed(row.collectives, 0) },
    { name: t("ui.column.last"), unit: "%", value: (row) => row.last, show: (row) => fixed(row.last * 100, 0) },
    { name: t("ui.arrivals.chance"), unit: "%", value: (row) => row.chance, show: (row) => fixed(row.chance * 100, 0) },
    {
      name: t("ui.column.blocked_time"),
      unit: blocked.unit,
      value: (row) => row.blockedTime,
      show: (row) => blocked.format(row.blockedTime),
    },
    {
      name: t("ui.arrivals.waited"),
      unit: waited.unit,
      value: (row) => row.waited,
      show: (row) => waited.format(row.waited),
    },
  ];
}
