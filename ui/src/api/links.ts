// Links as the server worked them out (metrics/network/slow_links.py, metrics/network/links.py).

import type { Columns } from "./columns";

export interface LinkNumbers {
  transport: string;
  bytes: number;
  /** ms */
  time: number;
  /** GB/s */
  bandwidth: number;
  /** Of the speed its transport can reach. */
  utilisation: number;
  /** Of what links of its class reach; NaN where there is no class to compare with. */
  ratio: number;
  /** Carries enough for its bandwidth to say something. */
  busy: boolean;
}

export interface LinkRow extends LinkNumbers {
  src: number;
  dst: number;
  /** GB/s that links of its class reach. */
  reference: number;
}

export const METRICS = ["bandwidth", "ratio", "utilisation", "bytes", "time", "transport"] as const;
export type Metric = (typeof METRICS)[number];

/** All rows of a table of links, or those named. */
export function readLinks(
  table: Columns,
  chosen: number[] = Array.from({ length: table.length }, (_, i) => i),
): LinkRow[] {
  const [src, dst, reference] = ["src", "dst", "reference"].map((name) => table.num(name));
  return chosen.map((i) => ({
    ...linkNumbers(table, i),
    src: src[i],
    dst: dst[i],
    reference: reference[i],
  }));
}

export function linkNumbers(table: Columns, i: number): LinkNumbers {
  const at = (name: string): number => table.num(name)[i];
  return {
    transport: table.text("transport")[i] ?? "?",
    bytes: at("bytes"),
    time: at("time"),
    bandwidth: at("bandwidth"),
    utilisation: at("utilisation"),
    ratio: at("ratio"),
    busy: at("busy") > 0,
  };
}

/** Slowest against their class first. */
export function slowestLinks(rows: LinkRow[], count: number): LinkRow[] {
  return rows
    .filter((row) => Number.isFinite(row.ratio))
    .sort((a, b) => a.ratio - b.ratio || b.time - a.time)
    .slice(0, count);
}
