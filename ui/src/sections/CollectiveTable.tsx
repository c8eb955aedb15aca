// Operator × kind of group: how long, how much of it waiting, how many bytes.
import { DataTable, type Column } from "../components/DataTable";
import { Empty, Section } from "../components/Section";
import { bytesColumn, fixed, msColumn, rateColumn, UNKNOWN } from "../i18n/numbers";
import { isKey, useText, type Text } from "../i18n/text";
import { useRunData } from "../api/runData";

interface Row {
  op: string;
  kind: string;
  groups: number;
  size: number;
  calls: number;
  time: number;
  wait: number;
  waitingShare: number;
  transit: number;
  bytes: number;
  bandwidth: number;
}

export function CollectiveTable() {
  const t = useText();
  const table = useRunData().document.tables.collectives;
  const [ops, kinds] = [table.text("op"), table.text("kind")];
  const at = (name: string, i: number): number => table.num(name)[i];
  const rows = ops.map((op, i): Row => ({
    op: op ?? UNKNOWN,
    kind: kinds[i] ?? "",
    groups: at("groups", i),
    size: at("size", i),
    calls: at("calls_per_step", i),
    time: at("time", i),
    wait: at("wait", i),
    waitingShare: at("waiting_share", i),
    transit: at("transit", i),
    bytes: at("bytes_per_call", i),
    bandwidth: at("bandwidth", i),
  }));
  return (
    <Section
      id="collectives"
      title={t("ui.collectives.title")}
      note={rows.length ? t("ui.collectives.note") : undefined}
    >
      {rows.length === 0 ? (
        <Empty title={t("ui.collectives.empty")} text={t("ui.collectives.empty.text")} />
      ) : (
        <DataTable columns={columns(rows, t)} rows={rows} caption={t("ui.collectives.title")} />
      )}
    </Section>
  );
}

/** "data parallel" for "dp"; kinds the catalogue does not name are "other". */
export function kindName(kind: string, t: Text): string {
  const key = `ui.kind.${kind || "unknown"}`;
  return t(isKey(key) ? key : "ui.kind.other");
}

function columns(rows: Row[], t: Text): Column<Row>[] {
  const ms = msColumn(rows.map((row) => row.time));
  const size = bytesColumn(rows.map((row) => row.bytes));
  const speed = rateColumn(rows.map((row) => row.bandwidth));
  const longest = Math.max(...rows.map((row) => row.time));
  return [
    { name: t("ui.column.op"), text: true, value: (row) => row.op, show: (row) => <code>{row.op}</code> },
    { name: t("ui.column.group"), text: true, value: (row) => kindName(row.kind, t) },
    { name: t("ui.collectives.groups"), value: (row) => row.groups, show: (row) => fixed(row.groups, 0) },
    { name: t("ui.column.members"), value: (row) => row.size, show: (row) => fixed(row.size, 0) },
    {
      name: t("ui.collectives.calls"),
      value: (row) => row.calls,
      show: (row) => fixed(row.calls, Number.isInteger(row.calls) ? 0 : 1),
    },
    { name: t("ui.column.time"), unit: ms.unit, value: (row) => row.time, show: (row) => ms.format(row.time) },
    { name: t("ui.collectives.wait"), unit: ms.unit, value: (row) => row.wait, show: (row) => ms.format(row.wait) },
    {
      name: t("ui.collectives.share"),
      text: true,
      value: (row) => row.waitingShare,
      show: (row) => <MoveWait row={row} longest={longest} />,
    },
    {
      name: t("ui.collectives.bytes"),
      unit: size.unit,
      value: (row) => row.bytes,
      show: (row) => size.format(row.bytes),
    },
    {
      name: t("ui.column.bandwidth"),
      unit: speed.unit,
      value: (row) => row.bandwidth,
      show: (row) => speed.format(row.bandwidth),
    },
  ];
}

function MoveWait({ row, longest }: { row: Row; longest: number }) {
  if (Number.isNaN(row.wait)) {
    return (
      <span class="inline" aria-hidden="true">
        <i class="free" style={{ width: `${(row.time / longest) * 100}%` }} />
      </span>
    );
  }
  return (
    <span class="inline" aria-hidden="true">
      <i class="exposed" style={{ width: `${((row.time - row.wait) / longest) * 100}%` }} />
      <i class="waiting" style={{ width: `${(row.wait / longest) * 100}%` }} />
    </span>
  );
}
