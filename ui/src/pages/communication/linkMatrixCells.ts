// Links as the cells of a matrix, by rank or by pair of hosts; a cell with several transports shows the one that takes most time.
import type { Cluster } from "../../api/cluster";
import { Columns } from "../../api/columns";
import { categoryFraction } from "../../charts/color";
import type { Axis, Spot } from "../../charts/matrixAxes";
import { clamp } from "../../charts/scale";

export const METRICS = ["bandwidth", "ratio", "utilisation", "bytes", "time", "transport"] as const;
export type Metric = (typeof METRICS)[number];

export interface MatrixQuery {
  cluster: Cluster;
  byHost: boolean;
  transport: string;
  metric: Metric;
}

export interface MatrixCells {
  axis: Axis;
  fractions: Float32Array;
  /** Row of the table that each cell shows; -1 = none. */
  rows: Int32Array;
  ends: [number, number];
  links: number;
  title: (spot: Spot) => string;
}

export function matrixCells(table: Columns, { cluster, byHost, transport, metric }: MatrixQuery): MatrixCells {
  const side = byHost ? cluster.hosts.length : cluster.order.length;
  const rows = new Int32Array(side * side).fill(-1);
  const time = table.num("time");
  const transports = table.text("transport");
  const placeOf = byHost ? hostPlaces(table, cluster) : rankPlaces(table, cluster);
  let links = 0;
  for (let i = 0; i < table.length; i++) {
    if (transport && transports[i] !== transport) continue;
    const [row, column] = placeOf(i);
    if (row === undefined || column === undefined || row < 0 || column < 0) continue;
    const at = row * side + column;
    if (rows[at] < 0 || time[i] > time[rows[at]]) rows[at] = i;
    links++;
  }
  const label = byHost
    ? (at: number) => cluster.hosts[at]?.name ?? ""
    : (at: number) => String(cluster.order[at]?.rank ?? "");
  const boundaries = byHost ? [] : cluster.hosts.map((host) => cluster.place.get(host.ranks[0]?.rank ?? -1) ?? 0);
  return {
    axis: { count: side, boundaries, names: byHost, label },
    ...colored(rows, table, metric),
    rows,
    links,
    title: (spot) => `${label(spot.row)} → ${label(spot.column)}`,
  };
}

/** Speeds on a straight scale, more colour is slower; bytes and time span decades and get a logarithmic one. */
function colored(rows: Int32Array, table: Columns, metric: Metric): Pick<MatrixCells, "fractions" | "ends"> {
  if (metric === "transport") return { fractions: transportFractions(rows, table), ends: [0, 1] };
  const column = table.num(metric);
  let [low, high] = [Infinity, 0];
  for (const row of rows) {
    const value = row < 0 ? NaN : column[row];
    if (value > high) high = value;
    if (value < low && value > 0) low = value;
  }
  const logarithmic = metric === "bytes" || metric === "time";
  const span = Math.log(high / low) || 1;
  const fractions = new Float32Array(rows.length).fill(NaN);
  rows.forEach((row, at) => {
    if (row < 0) return;
    const value = column[row];
    fractions[at] = logarithmic ? clamp(Math.log(value / low) / span, 0, 1) : 1 - clamp(value / (high || 1), 0, 1);
  });
  return { fractions, ends: logarithmic ? [low === Infinity ? 0 : low, high] : [high, 0] };
}

/** Transports in the order of the legend. */
export const transportNames = (table: Columns): string[] =>
  [...new Set(table.text("transport"))].filter((name): name is string => name !== null).sort();

function transportFractions(rows: Int32Array, table: Columns): Float32Array {
  const names = transportNames(table);
  const transports = table.text("transport");
  const known = new Map(names.map((name, i) => [name, categoryFraction(i, names.length)]));
  return Float32Array.from(rows, (row) => (row < 0 ? NaN : (known.get(transports[row] ?? "") ?? NaN)));
}

type Places = (row: number) => [number | undefined, number | undefined];

/** By rank, as an array: a Map look-up per link is what a million links cannot afford. */
function rankPlaces(table: Columns, cluster: Cluster): Places {
  const most = cluster.ranks.reduce((high, rank) => Math.max(high, rank.rank), 0);
  const places = new Int32Array(most + 1).fill(-1);
  for (const rank of cluster.ranks) places[rank.rank] = cluster.place.get(rank.rank) ?? -1;
  const [src, dst] = [table.num("src"), table.num("dst")];
  return (row) => [places[src[row]], places[dst[row]]];
}

function hostPlaces(table: Columns, cluster: Cluster): Places {
  const places = new Map(cluster.hosts.map((host) => [host.name, host.index]));
  const [src, dst] = [table.text("src"), table.text("dst")];
  return (row) => [places.get(src[row] ?? ""), places.get(dst[row] ?? "")];
}
