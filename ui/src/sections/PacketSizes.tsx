// Packet sizes per transport: where the time goes, and how fast each size travels.
import { Empty, Section } from "../components/Section";
import { binaryBytes, bytes, count, duration, percent, rate } from "../i18n/numbers";
import { useText } from "../i18n/text";
import { useRunData } from "../api/runData";

interface Row {
  transport: string;
  smallest: number;
  largest: number;
  count: number;
  bytes: number;
  bandwidth: number;
  /** Of the time of its transport. */
  share: number;
  totalBytes: number;
  totalTime: number;
}

export function PacketSizes() {
  const t = useText();
  const table = useRunData().document.tables.packets;
  const at = (name: string, i: number): number => table.num(name)[i];
  const rows = table.text("transport").map((transport, i): Row => ({
    transport: transport ?? "?",
    smallest: at("smallest", i),
    largest: at("largest", i),
    count: at("count", i),
    bytes: at("bytes", i),
    bandwidth: at("bandwidth", i),
    share: at("share", i),
    totalBytes: at("total_bytes", i),
    totalTime: at("total_time", i),
  }));
  const transports = [...new Set(rows.map((row) => row.transport))];
  return (
    <Section id="packets" title={t("ui.packets.title")} note={rows.length ? t("ui.packets.note") : undefined}>
      {rows.length === 0 && <Empty title={t("ui.packets.empty")} text={t("ui.packets.empty.text")} />}
      <div class="columns">
        {transports.map((name) => (
          <PacketTable key={name} name={name} rows={rows.filter((row) => row.transport === name)} />
        ))}
      </div>
    </Section>
  );
}

function PacketTable({ name, rows }: { name: string; rows: Row[] }) {
  const t = useText();
  return (
    <div class="table">
      <table>
        <caption>
          <strong>{name}</strong> {bytes(rows[0].totalBytes)} · {duration(rows[0].totalTime)}
        </caption>
        <thead>
          <tr>
            <th scope="col">{t("ui.packets.size")}</th>
            <th scope="col">{t("ui.packets.count")}</th>
            <th scope="col">{t("ui.column.bytes")}</th>
            <th class="text wide" scope="col">
              {t("ui.packets.share")}
            </th>
            <th scope="col">{t("ui.column.bandwidth")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.smallest}>
              <td>{sizes(row)}</td>
              <td>{count(row.count)}</td>
              <td>{bytes(row.bytes)}</td>
              <td class="text wide">
                <span class="inline labelled">
                  <i class="exposed" style={{ width: `${row.share * 70}%` }} />
                  <small>{percent(row.share)}</small>
                </span>
              </td>
              <td>{rate(row.bandwidth)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const sizes = (row: Row): string =>
  row.smallest === row.largest
    ? binaryBytes(row.smallest)
    : `${binaryBytes(row.smallest)} – ${binaryBytes(row.largest)}`;
