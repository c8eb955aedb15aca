// Lists of ranks as people type them; the server reads the same notation (core/rank_list.py).

const MOST = 1 << 20;

/** "0-7, 12" → ranks, nothing → [], what is not a list → null. */
export function readRankList(text: string): number[] | null {
  const found = new Set<number>();
  const pieces = text.replaceAll("，", ",").replaceAll("–", "-").split(",");
  if (text.trim() === "") return [];
  for (const piece of pieces) {
    const match = /^\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?$/.exec(piece);
    const [low, high] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
    if (!match || high < low || high >= MOST) return null;
    for (let rank = low; rank <= high; rank++) found.add(rank);
  }
  return [...found].sort((a, b) => a - b);
}

/** Filters of tables that are lists of ranks. */
export const RANK_FILTERS = ["rank", "src", "dst"] as const;

/** The first filter that is no list of ranks. */
export function unreadableFilter(filters: Record<string, unknown>): string | null {
  for (const name of RANK_FILTERS) {
    const value = filters[name];
    if (typeof value === "string" && readRankList(value) === null) return value;
  }
  return null;
}
