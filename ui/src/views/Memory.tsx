// Memory peaks against capacity, the fullest first.
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { bytesColumn, percent } from "../format/numbers";
import { useText, type Text } from "../i18n/text";
import { useScene } from "./context";

interface Row {
  rank: number;
  host: string;
  peak: number;
  capacity: number;
}

export function Memory() {
  const t = useText();
  const { document, cluster, focus } = useScene();
  const table = document.tables.memory;
  const [rank, peak, capacity] = ["rank", "peak", "capacity"].map((name) => table.num(name));
  const rows = Array.from({ length: table.length }, (_, i): Row => ({
    rank: rank[i], host: cluster.byRank.get(rank[i])?.host ?? "", peak: peak[i], capacity: capacity[i],
  }));
  const notes = [
    rows.length < cluster.ranks.length && t("memory.some", { n: rows.length, all: cluster.ranks.length.toLocaleString("en-US") }),
    rows.some((row) => Number.isNaN(row.capacity)) && t("memory.nocapacity"),
    table.text("basis").includes("theoretical") && t("memory.theoretical"),
  ].filter(Boolean);
  return (
    <Section id="memory" title={t("memory.title")} note={rows.length ? notes.join(" ") : undefined}>
      {rows.length === 0
        ? <Empty title={t("memory.empty")} text={t("memory.empty.text")} />
        : <DataTable columns={columns(rows, t)} rows={rows} sortedBy={2} most={16} caption={t("memory.title")}
            marked={(row) => focus.ranks.has(row.rank)} />}
    </Section>
  );
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const size = bytesColumn(rows.flatMap((row) => [row.peak, row.capacity]));
  const most = rows.reduce((high, row) => Math.max(high, Number.isNaN(row.capacity) ? row.peak : row.capacity), 0);
  const known = rows.some((row) => !Number.isNaN(row.capacity));
  const capacity: Column<Row> = { name: t("memory.capacity"), unit: size.unit, value: (row) => row.capacity, show: (row) => size.format(row.capacity) };
  return [
    { name: t("memory.rank"), value: (row) => row.rank },
    { name: t("memory.host"), text: true, value: (row) => row.host },
    { name: t("memory.peak"), unit: size.unit, value: (row) => row.peak, show: (row) => size.format(row.peak) },
    ...(known ? [capacity] : []),
    {
      name: t(known ? "memory.use" : "memory.ofmost"), text: true, value: (row) => row.peak / (known ? row.capacity : most),
      show: (row) => (
        <span class="inline labelled">
          <i class="compute" style={{ width: `${(row.peak / most) * 80}%` }} />
          <small>{Number.isNaN(row.capacity) ? "" : percent(row.peak / row.capacity)}</small>
        </span>
      ),
    },
  ];
}
