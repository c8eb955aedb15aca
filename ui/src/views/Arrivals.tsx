// Who comes last and holds the others up, and who waits.
import { useCallback, useMemo } from "preact/hooks";
import { RankBars, type Bar } from "../charts/RankBars";
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { duration, fixed, msColumn, percent } from "../format/numbers";
import { useText, type Text } from "../i18n/text";
import { useScene } from "./context";

interface Row {
  rank: number;
  host: string;
  meetings: number;
  last: number;
  chance: number;
  held: number;
  waited: number;
}

const HELD = ["waiting-deep"];

/** `tabled`: with a table, where the page has no other that tells the same. */
export function Arrivals({ tabled = true }: { tabled?: boolean }) {
  const t = useText();
  const { document, cluster, focus } = useScene();
  const table = document.tables.arrivals;
  const rows = useMemo(() => {
    const [rank, meetings, last, expected, held, waited] =
      ["rank", "meetings", "last", "expected", "held", "waited"].map((name) => table.num(name));
    return Array.from({ length: table.length }, (_, i): Row => ({
      rank: rank[i], host: cluster.byRank.get(rank[i])?.host ?? "", meetings: meetings[i], last: last[i] / meetings[i],
      chance: expected[i] / meetings[i], held: held[i], waited: waited[i],
    }));
  }, [table, cluster]);
  const byRank = useMemo(() => new Map(rows.map((row) => [row.rank, row])), [rows]);
  const bars = useMemo(
    () => rows.map((row): Bar => ({ rank: row.rank, up: [row.held], down: row.waited }))
      .sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0)),
    [rows, cluster],
  );
  const tip = useCallback((bar: Bar) => {
    const row = byRank.get(bar.rank);
    return { title: `${t("Rank", { n: bar.rank })} · ${row?.host ?? ""}`, lines: row ? describe(row, t) : [] };
  }, [byRank, t]);
  return (
    <Section id="arrivals" title={t("arrivals.title")} note={rows.length ? t("arrivals.note") : undefined}>
      {rows.length === 0 && <Empty title={t("arrivals.empty")} text={t("arrivals.empty.text")} />}
      {rows.length > 0 && (
        <>
          <h3>{t("arrivals.chart")}</h3>
          <RankBars bars={bars} colors={HELD} downColor="waiting" marked={focus.ranks} tip={tip} label={t("arrivals.label", { n: bars.length })} />
          {tabled && <DataTable columns={columns(rows, t)} rows={rows} sortedBy={5} most={10} caption={t("arrivals.title")}
            marked={(row) => focus.ranks.has(row.rank)} />}
        </>
      )}
    </Section>
  );
}

function describe(row: Row, t: Text): [string, string][] {
  return [
    [t("arrivals.last"), `${percent(row.last)} (${t("arrivals.chance")} ${percent(row.chance)})`],
    [t("arrivals.held"), `${duration(row.held)} ${t("arrivals.perstep")}`],
    [t("arrivals.waited"), `${duration(row.waited)} ${t("arrivals.perstep")}`],
  ];
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const held = msColumn(rows.map((row) => row.held));
  const waited = msColumn(rows.map((row) => row.waited));
  return [
    { name: t("arrivals.rank"), value: (row) => row.rank },
    { name: t("arrivals.host"), text: true, value: (row) => row.host },
    { name: t("arrivals.meetings"), value: (row) => row.meetings, show: (row) => fixed(row.meetings, 0) },
    { name: t("arrivals.last"), unit: "%", value: (row) => row.last, show: (row) => fixed(row.last * 100, 0) },
    { name: t("arrivals.chance"), unit: "%", value: (row) => row.chance, show: (row) => fixed(row.chance * 100, 0) },
    { name: t("arrivals.held"), unit: held.unit, value: (row) => row.held, show: (row) => held.format(row.held) },
    { name: t("arrivals.waited"), unit: waited.unit, value: (row) => row.waited, show: (row) => waited.format(row.waited) },
  ];
}
