// The cluster as people know it: ranks inside hosts, each with its share of a step and its peers.

import type { Columns } from "./columns";

export interface Rank {
  rank: number;
  host: string;
  hostIndex: number;
  device: number | null;
  stage: number | null;
  recorded: boolean;
}

export interface Host {
  name: string;
  index: number;
  ranks: Rank[];
}

export interface Cluster {
  ranks: Rank[];
  hosts: Host[];
  byRank: Map<number, Rank>;
  /** Place of a rank on a matrix axis: hosts side by side, ranks in order inside. */
  place: Map<number, number>;
  order: Rank[];
}

export const PARTS = ["compute", "overlapped", "exposed", "waiting", "tail", "free", "data"] as const;
export type Part = (typeof PARTS)[number];

export interface Share {
  rank: Rank;
  step: number;
  parts: Record<Part, number>;
  /** What the rank itself takes, whatever the others do: compute, idle and data, not communication. */
  own: number;
  /** own / median own of the same stage - 1 */
  excess: number;
}

export function readCluster(table: Columns): Cluster {
  const [rank, device, stage, recorded] = ["rank", "device", "stage", "recorded"].map((name) => table.num(name));
  const names = table.text("host");
  const hosts = new Map<string, Host>();
  const ranks: Rank[] = [];
  for (let i = 0; i < table.length; i++) {
    const name = names[i] ?? "";
    const host = hosts.get(name) ?? { name, index: hosts.size, ranks: [] };
    hosts.set(name, host);
    const one: Rank = {
      rank: rank[i], host: name, hostIndex: host.index, device: known(device[i]), stage: known(stage[i]),
      recorded: recorded[i] !== 0,
    };
    host.ranks.push(one);
    ranks.push(one);
  }
  const order = [...hosts.values()].flatMap((host) => host.ranks);
  return {
    ranks,
    hosts: [...hosts.values()],
    byRank: new Map(ranks.map((one) => [one.rank, one])),
    place: new Map(order.map((one, place) => [one.rank, place])),
    order,
  };
}

export function readShares(table: Columns, cluster: Cluster): Share[] {
  const rank = table.num("rank");
  const step = table.num("step");
  const columns = PARTS.map((part) => table.num(part));
  const shares: Share[] = [];
  for (let i = 0; i < table.length; i++) {
    const parts = Object.fromEntries(PARTS.map((part, p) => [part, orZero(columns[p][i])])) as Record<Part, number>;
    const own = parts.compute + parts.overlapped + parts.free + parts.data;
    const who = cluster.byRank.get(rank[i]);
    if (who) shares.push({ rank: who, step: step[i], parts, own, excess: 0 });
  }
  return withExcess(shares);
}

/** Like with like: a rank's own time against the median of its pipeline stage. */
function withExcess(shares: Share[]): Share[] {
  const byStage = new Map<number | null, number[]>();
  for (const share of shares) {
    const peers = byStage.get(share.rank.stage) ?? [];
    peers.push(share.own);
    byStage.set(share.rank.stage, peers);
  }
  const usual = new Map([...byStage].map(([stage, owns]) => [stage, median(owns)]));
  return shares.map((share) => {
    const peers = usual.get(share.rank.stage) ?? 0;
    return { ...share, excess: peers > 0 ? share.own / peers - 1 : 0 };
  });
}

/** The mean of several shares, as one bar. */
export function meanParts(shares: Share[]): { parts: Record<Part, number>; step: number } {
  const count = Math.max(1, shares.length);
  const parts = Object.fromEntries(
    PARTS.map((part) => [part, shares.reduce((sum, share) => sum + share.parts[part], 0) / count]),
  ) as Record<Part, number>;
  return { parts, step: PARTS.reduce((sum, part) => sum + parts[part], 0) };
}

/** Some recordings know phases (iteration interval, forward/backward, tail), not computing and communication. */
export const knowsPhasesOnly = (parts: Record<Part, number>): boolean => parts.tail > 0 && parts.exposed + parts.waiting === 0;

export function median(values: number[]): number {
  if (values.length === 0) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const known = (value: number): number | null => (Number.isNaN(value) ? null : value);
const orZero = (value: number): number => (Number.isNaN(value) ? 0 : value);
