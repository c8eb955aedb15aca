// The bandwidth table: per transport size, time, bandwidth, utilisation.
import { DataTable, type Column } from "../components/DataTable";
import { bytesColumn, count, msColumn, percent, rateColumn } from "../i18n/numbers";
import { useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";

interface Row {
  transport: string;
  links: number;
  bytes: number;
  time: number;
  bandwidth: number;
  median: number;
  slowest: number;
  /** GB/s the transport can reach. */
  speed: number;
  nominal: boolean;
  utilisation: number;
}

export function TransportTable() {
  const t = useText();
  const table = useRunData().document.tables.transports;
  const at = (name: string, i: number): number => table.num(name)[i];
  const rows = table.text("transport").map((name, i): Row => ({
    transport: name ?? "?",
    links: at("links", i),
    bytes: at("bytes", i),
    time: at("time", i),
    bandwidth: at("bandwidth", i),
    median: at("median", i),
    slowest: at("slowest", i),
    speed: at("speed", i),
    nominal: at("is_nominal", i) > 0,
    utilisation: at("utilisation", i),
  }));
  const guessed = rows.filter((row) => !row.nominal).map((row) => row.transport);
  return (
    <>
      <h3>{t("ui.links.table")}</h3>
      <DataTable columns={columns(rows, t)} rows={rows} caption={t("ui.links.table")} />
      <p class="note">
        {guessed.length < rows.length && t("ui.links.nominal")}{" "}
        {guessed.length > 0 && t("ui.links.best", { transports: guessed.join(", ") })}
      </p>
    </>
  );
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const size = bytesColumn(rows.map((row) => row.bytes));
  const time = msColumn(rows.map((row) => row.time));
  const speed = rateColumn(rows.map((row) => row.bandwidth));
  return [
    { name: t("ui.column.transport"), text: true, value: (row) => row.transport },
    { name: t("ui.links.links"), value: (row) => row.links, show: (row) => count(row.links) },
    { name: t("ui.column.bytes"), unit: size.unit, value: (row) => row.bytes, show: (row) => size.format(row.bytes) },
    { name: t("ui.column.time"), unit: time.unit, value: (row) => row.time, show: (row) => time.format(row.time) },
    {
      name: t("ui.column.bandwidth"),
      unit: speed.unit,
      value: (row) => row.bandwidth,
      show: (row) => speed.format(row.bandwidth),
    },
    {
      name: t("ui.links.reference"),
      unit: speed.unit,
      value: (row) => row.speed,
      show: (row) => speed.format(row.speed),
    },
    {
      name: t("ui.column.utilisation"),
      value: (row) => row.utilisation,
      show: (row) => percent(row.utilisation),
    },
    {
      name: t("ui.links.median"),
      unit: speed.unit,
      value: (row) => row.median,
      show: (row) => speed.format(row.median),
    },
    {
      name: t("ui.links.slowestlink"),
      unit: speed.unit,
      value: (row) => row.slowest,
      show: (row) => speed.format(row.slowest),
    },
  ];
}
