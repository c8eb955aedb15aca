// Where each card goes on the cluster map: pure layout.
import type { Host, Rank } from "../api/cluster";

export interface Cell {
  rank: Rank;
  x: number;
  y: number;
}

export interface Rack {
  host: Host;
  x: number;
  y: number;
  width: number;
}

export interface Racks {
  racks: Rack[];
  cells: Cell[];
  size: number;
  /** Cards side by side in a rack. */
  columns: number;
  labels: boolean;
  height: number;
  find: (x: number, y: number) => Cell | undefined;
}

const TALLEST = 330;
const LABEL = 18;

/** The largest cards with which all racks fit into `width` and a readable height. */
export function packRacks(hosts: Host[], width: number): Racks {
  const cards = Math.max(1, ...hosts.map((host) => host.ranks.length));
  // Cards of which no host is known are one line after the other, not a block that looks like a host.
  if (hosts.every((host) => !host.name)) return lines(hosts, width);
  const columns = cards <= 4 ? cards : cards <= 8 ? 4 : Math.ceil(Math.sqrt(cards));
  for (const size of SIZES) {
    const racks = place(hosts, { width, size, columns, cards });
    if (racks.height <= TALLEST || size === 4) return racks;
  }
  return place(hosts, { width, size: 4, columns, cards });
}

const SIZES = [46, 42, 38, 34, 30, 26, 22, 18, 15, 12, 10, 8, 7, 6, 5, 4];

function lines(hosts: Host[], width: number): Racks {
  const cards = hosts.reduce((sum, host) => sum + host.ranks.length, 0);
  const across = (size: number): number => Math.max(1, Math.floor((width - 4) / size));
  const size = SIZES.find((one) => Math.ceil(cards / across(one)) * one + LABEL <= TALLEST && one <= 34) ?? 4;
  return place(hosts, { width, size, columns: Math.min(cards, across(size)), cards });
}

interface Grid {
  width: number;
  size: number;
  columns: number;
  cards: number;
}

function place(hosts: Host[], { width, size, columns, cards }: Grid): Racks {
  const labels = size >= 15;
  const gap = size >= 15 ? 14 : Math.max(4, Math.round(size / 1.6));
  const rackWidth = columns * size;
  const rackHeight = Math.ceil(cards / columns) * size + (labels ? LABEL : 0);
  const across = Math.max(1, Math.floor((width - 4 + gap) / (rackWidth + gap)));
  const racks = hosts.map((host, i) => ({
    host,
    x: 2 + (i % across) * (rackWidth + gap),
    y: 2 + Math.floor(i / across) * (rackHeight + gap) + (labels ? LABEL : 0),
    width: rackWidth,
  }));
  const cells = racks.flatMap((rack) =>
    rack.host.ranks.map((rank, i) => ({
      rank,
      x: rack.x + (i % columns) * size,
      y: rack.y + Math.floor(i / columns) * size,
    })),
  );
  const height = Math.ceil(hosts.length / across) * (rackHeight + gap) - gap + 6;
  const find = (x: number, y: number): Cell | undefined =>
    cells.find((cell) => x >= cell.x && x < cell.x + size && y >= cell.y && y < cell.y + size);
  return { racks, cells, size, columns, labels, height, find };
}
