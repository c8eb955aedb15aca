// How ranks are called, wherever they are named.
import type { Rank } from "../data/cluster";
import type { Text } from "../i18n/text";

/** A host that is called by a number alone says that it is a host. */
export function hostName(name: string, t: Text): string {
  if (!name) return t("unknown host");
  return /^\d+$/.test(name) ? t("host", { name }) : name;
}

/** "rank 5 · node1 · card 5 · stage 0" */
export function fullName(rank: Rank, t: Text): string {
  const parts = [t("Rank", { n: rank.rank }), hostName(rank.host, t)];
  if (rank.device !== null) parts.push(t("device", { n: rank.device }));
  if (rank.stage !== null) parts.push(t("stage", { n: rank.stage }));
  return parts.join(" · ");
}
