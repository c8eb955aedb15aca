// Packet sizes per transport: where the time goes, and how fast each size travels.
import { Empty, Section } from "../components/Section";
import { binaryBytes, bytes, count, duration, percent, rate } from "../format/numbers";
import { useText } from "../i18n/text";
import { useScene } from "./context";

interface Row {
  transport: string;
  smallest: number;
  largest: number;
  count: number;
  bytes: number;
  time: number;
}

export function Packets() {
  const t = useText();
  const table = useScene().document.tables.packets;
  const at = (name: string, i: number): number => table.num(name)[i];
  const rows = table.text("transport").map((transport, i): Row => ({
    transport: transport ?? "?", smallest: at("smallest", i), largest: at("largest", i), count: at("count", i),
    bytes: at("bytes", i), time: at("time", i),
  }));
  const transports = [...new Set(rows.map((row) => row.transport))];
  return (
    <Section id="packets" title={t("packets.title")} note={rows.length ? t("packets.note") : undefined}>
      {rows.length === 0 && <Empty title={t("packets.empty")} text={t("packets.empty.text")} />}
      <div class="columns">
        {transports.map((name) => <PacketTable key={name} name={name} rows={rows.filter((row) => row.transport === name)} />)}
      </div>
    </Section>
  );
}

function PacketTable({ name, rows }: { name: string; rows: Row[] }) {
  const t = useText();
  const total = rows.reduce((sum, row) => sum + (row.time || 0), 0) || 1;
  return (
    <div class="table">
      <table>
        <caption><strong>{name}</strong> {bytes(rows.reduce((sum, row) => sum + row.bytes, 0))} · {duration(total)}</caption>
        <thead>
          <tr>
            <th scope="col">{t("packets.size")}</th><th scope="col">{t("packets.count")}</th>
            <th scope="col">{t("packets.bytes")}</th><th class="text wide" scope="col">{t("packets.share")}</th>
            <th scope="col">{t("packets.speed")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.smallest}>
              <td>{sizes(row)}</td><td>{count(row.count)}</td><td>{bytes(row.bytes)}</td>
              <td class="text wide">
                <span class="inline labelled">
                  <i class="exposed" style={{ width: `${(row.time / total) * 70}%` }} /><small>{percent(row.time / total)}</small>
                </span>
              </td>
              <td>{rate(row.time > 0 ? row.bytes / (row.time * 1e6) : NaN)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const sizes = (row: Row): string =>
  row.smallest === row.largest ? binaryBytes(row.smallest) : `${binaryBytes(row.smallest)} – ${binaryBytes(row.largest)}`;
