// How ranks are called, wherever they are named.
import type { Rank } from "../api/cluster";
import type { Text } from "./text";

/** A host that is called by a number alone says that it is a host. */
export function hostName(name: string, t: Text): string {
  if (!name) return t("ui.name.unknown_host");
  return /^\d+$/.test(name) ? t("ui.name.host", { name }) : name;
}

/** "rank 5 · node1 · card 5 · stage 0" */
export function fullName(rank: Rank, t: Text): string {
  const parts = [t("ui.name.rank_title", { n: rank.rank }), hostName(rank.host, t)];
  if (rank.device !== null) parts.push(t("ui.name.device", { n: rank.device }));
  if (rank.stage !== null) parts.push(t("ui.name.stage", { n: rank.stage }));
  return parts.join(" · ");
}
