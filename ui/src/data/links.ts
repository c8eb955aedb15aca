// Links judged against links of their kind: same transport, about the same bytes.

import { median } from "./cluster";
import type { Columns } from "./columns";

export interface LinkRow {
  src: number;
  dst: number;
  transport: string;
  bytes: number;
  time: number;
  /** GB/s = bytes / ns */
  bandwidth: number;
  /** Median bandwidth of links of the same transport that carry between a quarter of and four times as much. */
  peers: number;
}

export const METRICS = ["bandwidth", "utilisation", "bytes", "time", "transport"] as const;
export type Metric = (typeof METRICS)[number];

const MS = 1e6;

export function readLinks(table: Columns): LinkRow[] {
  const [src, dst, bytes, time] = ["src", "dst", "bytes", "time"].map((name) => table.num(name));
  const transport = table.text("transport");
  const rows: LinkRow[] = [];
  for (let i = 0; i < table.length; i++) {
    rows.push({
      src: src[i], dst: dst[i], transport: transport[i] ?? "?", bytes: bytes[i], time: time[i],
      bandwidth: time[i] > 0 ? bytes[i] / (time[i] * MS) : NaN, peers: NaN,
    });
  }
  return withPeers(rows);
}

function withPeers(rows: LinkRow[]): LinkRow[] {
  const classes = new Map<string, number[]>();
  const bucket = (bytes: number): number => Math.round(Math.log2(Math.max(1, bytes)) / 2);
  for (const row of rows) {
    if (Number.isNaN(row.bandwidth)) continue;
    const key = `${row.transport} ${bucket(row.bytes)}`;
    const members = classes.get(key);
    if (members) members.push(row.bandwidth);
    else classes.set(key, [row.bandwidth]);
  }
  const usual = new Map([...classes].map(([key, values]) => [key, median(values)]));
  return rows.map((row) => ({ ...row, peers: usual.get(`${row.transport} ${bucket(row.bytes)}`) ?? NaN }));
}

/** Slowest against their own kind first; links that carry crumbs are slow by nature and left out. */
export function slowestLinks(rows: LinkRow[], count: number): LinkRow[] {
  const busiest = new Map<string, number>();
  for (const row of rows) busiest.set(row.transport, Math.max(busiest.get(row.transport) ?? 0, row.bytes));
  return rows
    .filter((row) => row.bytes >= 0.1 * (busiest.get(row.transport) ?? 0) && row.bandwidth > 0 && row.peers > 0)
    .sort((a, b) => a.bandwidth / a.peers - b.bandwidth / b.peers || b.time - a.time)
    .slice(0, count);
}

export interface Reference {
  /** GB/s that counts as full use of the transport. */
  speed: number;
  nominal: boolean;
}

/** The design speed where it is known, else what the best links of this run reach (95th percentile). */
export function references(transports: Columns, nominal: Record<string, number>): Map<string, Reference> {
  const names = transports.text("transport");
  const top = transports.num("top");
  return new Map(
    names.map((name, i) => {
      const design = nominal[name ?? ""];
      return [name ?? "?", design ? { speed: design, nominal: true } : { speed: top[i], nominal: false }];
    }),
  );
}
