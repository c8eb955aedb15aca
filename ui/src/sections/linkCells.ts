// Links as matrix cells, by rank or by host, on one colour scale per metric.
import { categoryFraction } from "../charts/color";
import type { Axis } from "../charts/matrixAxes";
import type { MatrixCell } from "../charts/matrixGrid";
import { clamp, logFraction } from "../charts/scale";
import type { Cluster } from "../api/cluster";
import type { Columns } from "../api/columns";
import { linkKey, type Focus } from "../api/focus";
import { linkNumbers, type LinkNumbers, type LinkRow, type Metric } from "../api/links";

export interface LinkPart extends LinkNumbers {
  links: number;
}

export interface LinkCell extends MatrixCell {
  title: string;
  parts: LinkPart[];
}

export interface MatrixView {
  cluster: Cluster;
  rows: LinkRow[];
  metric: Metric;
  names: string[];
  focus: Focus;
}

export interface Cells {
  axis: Axis;
  cells: LinkCell[];
  values: number[];
}

export function rankCells(view: MatrixView): Cells {
  const { cluster, rows, focus } = view;
  const cells = new Map<number, LinkCell>();
  const count = cluster.order.length;
  for (const link of rows) {
    const [row, column] = [cluster.place.get(link.src), cluster.place.get(link.dst)];
    if (row === undefined || column === undefined) continue;
    const key = row * count + column;
    const cell = cells.get(key) ?? {
      row,
      column,
      fraction: NaN,
      small: false,
      parts: [],
      title: `${link.src} → ${link.dst}`,
      marked: focus.links.size > 0 && focus.links.has(linkKey(link.src, link.dst)),
    };
    cell.parts.push({ ...link, links: 1 });
    if (cell.parts.length === 1) cells.set(key, cell);
  }
  const boundaries = cluster.hosts.map((host) => cluster.place.get(host.ranks[0]?.rank ?? -1) ?? 0);
  const axis: Axis = { count, boundaries, names: false, label: (place) => String(cluster.order[place]?.rank ?? "") };
  return colored([...cells.values()], axis, view);
}

export function hostCells(view: MatrixView, table: Columns, transport: string): Cells {
  const { cluster, focus } = view;
  const place = new Map(cluster.hosts.map((host) => [host.name, host.index]));
  const marked = new Set(
    [...focus.links].map((key) =>
      key
        .split("-")
        .map((rank) => cluster.byRank.get(Number(rank))?.host)
        .join(" → "),
    ),
  );
  const [src, dst, transports] = [table.text("src"), table.text("dst"), table.text("transport")];
  const cells = new Map<string, LinkCell>();
  for (let i = 0; i < table.length; i++) {
    const kind = transports[i] ?? "?";
    const [row, column] = [place.get(src[i] ?? ""), place.get(dst[i] ?? "")];
    if (row === undefined || column === undefined || (transport && kind !== transport)) continue;
    const title = `${src[i]} → ${dst[i]}`;
    const cell = cells.get(title) ?? {
      row,
      column,
      fraction: NaN,
      small: false,
      marked: marked.has(title),
      title,
      parts: [],
    };
    cell.parts.push({ ...linkNumbers(table, i), links: table.num("links")[i] });
    cells.set(title, cell);
  }
  const axis: Axis = {
    count: cluster.hosts.length,
    boundaries: [],
    names: true,
    label: (at) => cluster.hosts[at]?.name ?? "",
  };
  return colored([...cells.values()], axis, view);
}

/** A cell with several transports has the colour of the one it spends most time on. */
function colored(cells: LinkCell[], axis: Axis, { metric, names }: MatrixView): Cells {
  const main = cells.map((cell) => cell.parts.reduce((most, part) => (part.time > most.time ? part : most)));
  const values = metric === "transport" ? [] : main.map((part) => part[metric]);
  const { fraction } = scaleFor(metric, values);
  cells.forEach((cell, i) => {
    cell.small = !main[i].busy;
    cell.fraction =
      metric === "transport" ? categoryFraction(names.indexOf(main[i].transport), names.length) : fraction(values[i]);
  });
  return { axis, cells, values };
}

/** Speeds on a straight scale down to zero; bytes and time span decades and get a logarithmic one. */
export function scaleFor(
  metric: Metric,
  values: number[],
): { fraction: (value: number) => number; ends: [number, number] } {
  const known = values.filter((value) => Number.isFinite(value) && value > 0);
  const high = known.reduce((most, value) => Math.max(most, value), 0) || 1;
  const low = known.reduce((least, value) => Math.min(least, value), high);
  if (metric === "bytes" || metric === "time") {
    const scale = logFraction(low, high);
    return { ends: [low, high], fraction: (value) => (Number.isFinite(value) ? scale(value) : NaN) };
  }
  // More colour is slower: the eye must find the slow link, not the fast ones.
  return { ends: [high, 0], fraction: (value) => (Number.isFinite(value) ? 1 - clamp(value / high, 0, 1) : NaN) };
}
