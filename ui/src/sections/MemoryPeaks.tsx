// Memory peaks against capacity, the fullest first.
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { memoryColumn, percent, signedPercent } from "../i18n/numbers";
import { useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";

interface Row {
  rank: number;
  host: string;
  peak: number;
  capacity: number;
  share: number;
  excess: number;
}

export function MemoryPeaks() {
  const t = useText();
  const { document, cluster, focus } = useRunData();
  const table = document.tables.memory;
  const [rank, peak, capacity, share, excess] = ["rank", "peak", "capacity", "share", "excess"].map((name) =>
    table.num(name),
  );
  const rows = Array.from({ length: table.length }, (_, i): Row => ({
    rank: rank[i],
    host: cluster.byRank.get(rank[i])?.host ?? "",
    peak: peak[i],
    capacity: capacity[i],
    share: share[i],
    excess: excess[i],
  }));
  const notes = [
    rows.length < cluster.ranks.length &&
      t("ui.memory.some", { n: rows.length, all: cluster.ranks.length.toLocaleString("en-US") }),
    rows.some((row) => Number.isNaN(row.capacity)) && t("ui.memory.nocapacity"),
    table.text("basis").includes("theoretical") && t("ui.memory.theoretical"),
  ].filter(Boolean);
  return (
    <Section id="memory" title={t("ui.memory.title")} note={rows.length ? notes.join(" ") : undefined}>
      {rows.length === 0 ? (
        <Empty title={t("ui.memory.empty")} text={t("ui.memory.empty.text")} />
      ) : (
        <DataTable
          columns={columns(rows, t)}
          rows={rows}
          sortedBy={2}
          most={16}
          caption={t("ui.memory.title")}
          marked={(row) => focus.ranks.has(row.rank)}
        />
      )}
    </Section>
  );
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const size = memoryColumn(rows.flatMap((row) => [row.peak, row.capacity]));
  const most = rows.reduce((high, row) => Math.max(high, Number.isNaN(row.capacity) ? row.peak : row.capacity), 0);
  const known = rows.some((row) => !Number.isNaN(row.capacity));
  const capacity: Column<Row> = {
    name: t("ui.column.capacity"),
    unit: size.unit,
    value: (row) => row.capacity,
    show: (row) => size.format(row.capacity),
  };
  return [
    { name: t("ui.column.rank"), value: (row) => row.rank },
    { name: t("ui.column.host"), text: true, value: (row) => row.host },
    { name: t("ui.column.peak"), unit: size.unit, value: (row) => row.peak, show: (row) => size.format(row.peak) },
    ...(known ? [capacity] : []),
    {
      name: t("ui.memory.use"),
      text: true,
      value: (row) => row.share,
      show: (row) => (
        <span class="inline labelled">
          <i class="compute" style={{ width: `${(row.peak / most) * 80}%` }} />
          <small>{Number.isNaN(row.share) ? "" : percent(row.share)}</small>
        </span>
      ),
    },
    { name: t("ui.column.excess"), value: (row) => row.excess, show: (row) => signedPercent(row.excess) },
  ];
}
