// What a finding marks red, and which views prove it.

import type { Cluster } from "./cluster";
import type { Finding } from "./document";

export type ViewId =
  "time" | "steps" | "collectives" | "arrivals" | "operators" | "packets" | "links" | "memory" | "data";

export interface Focus {
  finding: number | null;
  ranks: ReadonlySet<number>;
  hosts: ReadonlySet<string>;
  links: ReadonlySet<string>;
  firstLink: { src: number; dst: number } | null;
  steps: ReadonlySet<number>;
}

export const NO_FOCUS: Focus = {
  finding: null,
  ranks: new Set(),
  hosts: new Set(),
  links: new Set(),
  firstLink: null,
  steps: new Set(),
};

const PROOFS: Record<string, ViewId[]> = {
  "slow-rank": ["time", "arrivals", "steps"],
  "slow-host": ["time", "arrivals"],
  "slow-link": ["links", "operators"],
  "small-packets": ["packets", "collectives"],
  "bandwidth-contention": ["links", "collectives"],
  "comm-exposed": ["time", "collectives"],
  "load-imbalance": ["time", "steps"],
  "stage-imbalance": ["time"],
  "pipeline-bubble": ["time", "collectives"],
  "input-bound": ["time"],
  "host-bound": ["time"],
  "slow-operator": ["time", "operators"],
  "cpu-operators": ["time"],
  "frequency-drop": ["time", "steps"],
  "memory-pressure": ["memory"],
  "memory-imbalance": ["memory"],
  "one-off-stall": ["steps", "operators"],
  "periodic-stall": ["steps", "operators"],
  jitter: ["steps", "time"],
  "data-incomplete": ["data"],
};

export function proofsOf(finding: Finding): ViewId[] {
  return PROOFS[finding.id] ?? (finding.subject.links.length > 0 ? ["links"] : ["time"]);
}

export const linkKey = (src: number, dst: number): string => `${src}-${dst}`;

/** Ranks if it names ranks; else the ranks of its hosts or stages. A link's ends are not culprits, the link is. */
export function focusOn(finding: Finding, index: number, cluster: Cluster): Focus {
  const { ranks, hosts, stages, links } = finding.subject;
  let marked = ranks;
  if (links.length > 0) marked = [];
  else if (ranks.length === 0 && hosts.length > 0) {
    marked = cluster.ranks.filter((rank) => hosts.includes(rank.host)).map((rank) => rank.rank);
  } else if (ranks.length === 0) {
    marked = cluster.ranks
      .filter((rank) => rank.stage !== null && stages.includes(rank.stage))
      .map((rank) => rank.rank);
  }
  // A whole cluster is nobody in particular.
  if (marked.length === cluster.ranks.length) marked = [];
  return {
    finding: index,
    ranks: new Set(marked),
    hosts: new Set(ranks.length === 0 && links.length === 0 ? hosts : []),
    links: new Set(links.map((link) => linkKey(link.src, link.dst))),
    firstLink: links[0] ?? null,
    // A persistent fault is in every step, and marks none in particular.
    steps: new Set(finding.chronic ? [] : finding.subject.steps),
  };
}
