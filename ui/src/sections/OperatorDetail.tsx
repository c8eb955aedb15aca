// The links and packet sizes of one communication operator, of all its ranks or of the one the others wait for.
import { useMemo, useState } from "preact/hooks";
import { Matrix } from "../charts/Matrix";
import { sparseGrid } from "../charts/matrixGrid";
import { Choice } from "../components/Choice";
import { DataTable, type Column } from "../components/DataTable";
import type { Columns } from "../api/columns";
import { METRICS, readLinks } from "../api/links";
import { useRunData } from "../api/runData";
import { binaryBytes, bytesColumn, count, msColumn, percent, rateColumn } from "../i18n/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { rankCells, scaleFor } from "./linkCells";
import { LinkRamp, tipOf } from "./Links";

/** Links of one operator are not compared with a class. */
const SHOWN = METRICS.filter((metric) => metric !== "ratio");

interface Traffic {
  transport: string;
  /** Links or packets. */
  count: number;
  /** Of one packet; NaN for links. */
  size: number;
  bytes: number;
  time: number;
  bandwidth: number;
  utilisation: number;
}

export function OperatorDetail({ id, last }: { id: number; last: number }) {
  const t = useText();
  const { document, cluster, focus } = useRunData();
  const [whose, setWhose] = useState<"all" | "last">("all");
  const [metric, setMetric] = useState<(typeof SHOWN)[number]>("bandwidth");
  const { operator_links: links, operator_transports: transports, operator_packets: packets } = document.tables;
  const rows = useMemo(() => readLinks(links, rowsOf(links, id, whose)), [links, id, whose]);
  const sums = useMemo(() => trafficOf(transports, id, whose, "links"), [transports, id, whose]);
  const sizes = useMemo(() => trafficOf(packets, id, whose, "count"), [packets, id, whose]);
  const names = useMemo(() => [...new Set(rows.map((row) => row.transport))], [rows]);
  const shown = useMemo(
    () => rankCells({ cluster, rows, metric, names, focus }),
    [cluster, rows, metric, names, focus],
  );
  const grid = useMemo(() => sparseGrid(shown.cells, shown.axis.count), [shown]);
  if (rowsOf(links, id, "all").length + rowsOf(packets, id, "all").length === 0) {
    return <p class="note">{t("ui.operators.nolinks")}</p>;
  }
  return (
    <>
      <h3>{t("ui.operators.links", { metric: t(`ui.column.${metric}` as Key) })}</h3>
      <div class="controls">
        {Number.isFinite(last) && (
          <Choice
            label={t("ui.operators.whose")}
            value={whose}
            onChange={setWhose}
            options={[
              { value: "all", label: t("ui.operators.whose.all") },
              { value: "last", label: t("ui.operators.whose.last", { n: last }) },
            ]}
          />
        )}
        <Choice
          label={t("ui.links.metric")}
          value={metric}
          onChange={setMetric}
          options={SHOWN.map((value) => ({ value, label: t(`ui.column.${value}` as Key) }))}
        />
      </div>
      {rows.length > 0 && (
        <div class="split">
          <div>
            <Matrix
              axis={shown.axis}
              grid={grid}
              tip={(spot) => tipOf(grid.cellAt(spot), t)}
              target={null}
              label={t("ui.links.label", { n: count(shown.cells.length) })}
            />
            <LinkRamp metric={metric} ends={scaleFor(metric, shown.values).ends} names={names} />
          </div>
          <TrafficTable title={t("ui.links.table")} rows={sums} t={t} />
        </div>
      )}
      {sizes.length > 0 && <TrafficTable title={t("ui.packets.title")} rows={sizes} t={t} />}
      {rows.length === 0 && <p class="note">{t("ui.operators.nolinks")}</p>}
    </>
  );
}

function TrafficTable({ title, rows, t }: { title: string; rows: Traffic[]; t: Text }) {
  return (
    <div>
      <h4>{title}</h4>
      <DataTable columns={columns(rows, t)} rows={rows} caption={title} most={14} />
    </div>
  );
}

function columns(rows: Traffic[], t: Text): Column<Traffic>[] {
  const size = bytesColumn(rows.map((row) => row.bytes));
  const time = msColumn(rows.map((row) => row.time));
  const speed = rateColumn(rows.map((row) => row.bandwidth));
  const isPackets = rows.some((row) => Number.isFinite(row.size));
  const packetSize: Column<Traffic> = {
    name: t("ui.packets.size"),
    value: (row) => row.size,
    show: (row) => binaryBytes(row.size),
  };
  const used: Column<Traffic> = {
    name: t("ui.column.utilisation"),
    value: (row) => row.utilisation,
    show: (row) => percent(row.utilisation),
  };
  return [
    { name: t("ui.column.transport"), text: true, value: (row) => row.transport },
    ...(isPackets ? [packetSize] : []),
    {
      name: t(isPackets ? "ui.packets.count" : "ui.links.links"),
      value: (row) => row.count,
      show: (row) => count(row.count),
    },
    { name: t("ui.column.bytes"), unit: size.unit, value: (row) => row.bytes, show: (row) => size.format(row.bytes) },
    { name: t("ui.column.time"), unit: time.unit, value: (row) => row.time, show: (row) => time.format(row.time) },
    {
      name: t("ui.column.bandwidth"),
      unit: speed.unit,
      value: (row) => row.bandwidth,
      show: (row) => speed.format(row.bandwidth),
    },
    ...(isPackets ? [] : [used]),
  ];
}

function rowsOf(table: Columns, id: number, whose: "all" | "last"): number[] {
  const [ids, owners] = [table.num("id"), table.text("whose")];
  return Array.from({ length: table.length }, (_, i) => i).filter((i) => ids[i] === id && owners[i] === whose);
}

function trafficOf(table: Columns, id: number, whose: "all" | "last", counted: "links" | "count"): Traffic[] {
  const [counts, sizes, bytes, time, bandwidth, utilisation] = [
    counted,
    "packet_bytes",
    "bytes",
    "time",
    "bandwidth",
    "utilisation",
  ].map((name) => table.num(name));
  const transports = table.text("transport");
  return rowsOf(table, id, whose).map((i) => ({
    transport: transports[i] ?? "?",
    count: counts[i],
    size: sizes[i],
    bytes: bytes[i],
    time: time[i],
    bandwidth: bandwidth[i],
    utilisation: utilisation[i],
  }));
}
