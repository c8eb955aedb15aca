// How ranks are called, wherever they are named.
import type { Rank } from "../data/cluster";
import type { Text } from "../i18n/text";

/** "rank 5 · node1 · card 5 · stage 0" */
export function fullName(rank: Rank, t: Text): string {
  const parts = [t("Rank", { n: rank.rank }), rank.host || t("unknown host")];
  if (rank.device !== null) parts.push(t("device", { n: rank.device }));
  if (rank.stage !== null) parts.push(t("stage", { n: rank.stage }));
  return parts.join(" · ");
}
