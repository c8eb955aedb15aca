// The bandwidth table: per transport size, time, bandwidth, utilisation.
import { DataTable, type Column } from "../components/DataTable";
import type { Reference } from "../data/links";
import { bytesColumn, count, msColumn, percent, rateColumn } from "../format/numbers";
import { useText, type Text } from "../i18n/text";
import { useScene } from "./context";

interface Row {
  transport: string;
  links: number;
  bytes: number;
  time: number;
  bandwidth: number;
  usual: number;
  slowest: number;
  reference: number;
  nominal: boolean;
}

export function Transports({ speeds }: { speeds: Map<string, Reference> }) {
  const t = useText();
  const table = useScene().document.tables.transports;
  const at = (name: string, i: number): number => table.num(name)[i];
  const rows = table.text("transport").map((name, i): Row => {
    const reference = speeds.get(name ?? "?");
    return {
      transport: name ?? "?", links: at("links", i), bytes: at("bytes", i), time: at("time", i), bandwidth: at("bandwidth", i),
      usual: at("usual", i), slowest: at("slowest", i), reference: reference?.speed ?? NaN, nominal: reference?.nominal ?? false,
    };
  });
  const guessed = rows.filter((row) => !row.nominal).map((row) => row.transport);
  return (
    <>
      <h3>{t("links.table")}</h3>
      <DataTable columns={columns(rows, t)} rows={rows} caption={t("links.table")} />
      <p class="note">
        {guessed.length < rows.length && t("links.nominal")} {guessed.length > 0 && t("links.best", { transports: guessed.join(", ") })}
      </p>
    </>
  );
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const size = bytesColumn(rows.map((row) => row.bytes));
  const time = msColumn(rows.map((row) => row.time));
  const speed = rateColumn(rows.map((row) => row.bandwidth));
  return [
    { name: t("links.transport"), text: true, value: (row) => row.transport },
    { name: t("links.links"), value: (row) => row.links, show: (row) => count(row.links) },
    { name: t("links.bytes"), unit: size.unit, value: (row) => row.bytes, show: (row) => size.format(row.bytes) },
    { name: t("links.time"), unit: time.unit, value: (row) => row.time, show: (row) => time.format(row.time) },
    { name: t("links.bandwidth"), unit: speed.unit, value: (row) => row.bandwidth, show: (row) => speed.format(row.bandwidth) },
    { name: t("links.reference"), unit: speed.unit, value: (row) => row.reference, show: (row) => speed.format(row.reference) },
    { name: t("links.utilisation"), value: (row) => row.bandwidth / row.reference, show: (row) => percent(row.bandwidth / row.reference) },
    { name: t("links.usual"), unit: speed.unit, value: (row) => row.usual, show: (row) => speed.format(row.usual) },
    { name: t("links.slowestlink"), unit: speed.unit, value: (row) => row.slowest, show: (row) => speed.format(row.slowest) },
  ];
}
