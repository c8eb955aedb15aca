// The cluster as people know it: ranks inside hosts, each with its share of a step and its peers.

import type { Columns, Numbers } from "./columns";

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

export const PARTS = ["compute", "overlapped", "exposed", "waiting", "tail", "free", "data", "unknown"] as const;
export type Part = (typeof PARTS)[number];

export type Parts = Record<Part, number>;

/** A rank's step as the server worked it out (metrics/rank_performance.py), ms. */
export interface Share {
  rank: Rank;
  duration: number;
  parts: Parts;
  selfTime: number;
  /** Self time of its peers; NaN without peers, and so is the excess. */
  reference: number;
  /** selfTime / reference - 1 */
  excess: number;
}

/** The mean step of some ranks, ms. */
export interface MeanStep {
  duration: number;
  parts: Parts;
}

/** Self time and excess are those of its median rank. */
export interface HostShare extends MeanStep {
  host: string;
  medianRank: number;
  selfTime: number;
  excess: number;
  worstExcess: number;
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
      rank: rank[i],
      host: name,
      hostIndex: host.index,
      device: known(device[i]),
      stage: known(stage[i]),
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
  const [rank, duration, selfTime, reference, excess] = numbers(table, SHARE_COLUMNS);
  const shares: Share[] = [];
  for (let i = 0; i < table.length; i++) {
    const who = cluster.byRank.get(rank[i]);
    if (!who) continue;
    shares.push({
      rank: who,
      duration: duration[i],
      parts: partsAt(table, i),
      selfTime: selfTime[i],
      reference: reference[i],
      excess: excess[i],
    });
  }
  return shares;
}

export function readHostShares(table: Columns): HostShare[] {
  const [duration, medianRank, selfTime, excess, worstExcess] = numbers(table, HOST_COLUMNS);
  return table.text("host").map((host, i) => ({
    host: host ?? "",
    medianRank: medianRank[i],
    duration: duration[i],
    parts: partsAt(table, i),
    selfTime: selfTime[i],
    excess: excess[i],
    worstExcess: worstExcess[i],
  }));
}

export function readMeanStep(table: Columns): MeanStep | null {
  return table.length ? { duration: table.num("duration")[0], parts: partsAt(table, 0) } : null;
}

/** The same as the header of a chart gives it. */
export function meanStepOf(about: Record<string, unknown>): MeanStep | null {
  const mean = about["mean"] as Record<string, number | null> | undefined;
  if (mean?.["duration"] == null) return null;
  const parts = Object.fromEntries(PARTS.map((part) => [part, mean[part] ?? 0])) as Parts;
  return { duration: mean["duration"], parts };
}

const SHARE_COLUMNS = ["rank", "duration", "self_time", "reference", "excess"];
const HOST_COLUMNS = ["duration", "median_rank", "self_time", "excess", "worst_excess"];

const numbers = (table: Columns, names: string[]): Numbers[] => names.map((name) => table.num(name));

const partsAt = (table: Columns, i: number): Parts =>
  Object.fromEntries(PARTS.map((part) => [part, orZero(table.num(part)[i])])) as Parts;

/** What is unknown comes last. */
export const byExcess = (a: { excess: number }, b: { excess: number }): number =>
  (Number.isNaN(b.excess) ? -Infinity : b.excess) - (Number.isNaN(a.excess) ? -Infinity : a.excess) || 0;

/** Some recordings know phases (iteration interval, forward/backward, tail), not computing and communication. */
export const knowsPhasesOnly = (parts: Parts): boolean => parts.tail > 0 && parts.exposed + parts.waiting === 0;

/** What a recording of phases does not tell; its forward and backward holds them all. */
const UNKNOWN_IN_PHASES = ["compute", "overlapped", "exposed", "waiting", "tail", "free", "bubble"];

/** Columns of a table of steps that say nothing in this recording. */
export function hiddenParts(mean: Parts | undefined): readonly string[] {
  if (!mean) return [];
  if (knowsPhasesOnly(mean)) return [...UNKNOWN_IN_PHASES, "unknown"];
  return (["tail", "unknown"] as const).filter((part) => !(mean[part] > 0));
}

const known = (value: number): number | null => (Number.isNaN(value) ? null : value);
const orZero = (value: number): number => (Number.isNaN(value) ? 0 : value);
