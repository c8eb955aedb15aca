// The lanes of a timeline as they are laid out on a page: ranks under each other, tracks inside, rows inside tracks.
import type { Columns } from "../api/columns";

export interface Lane {
  index: number;
  rank: number;
  track: string;
  row: number;
  events: number;
  recorded: boolean;
}

export interface RankLanes {
  rank: number;
  summary: Lane[];
  recorded: Lane[];
}

export interface LaidLane extends Lane {
  y: number;
  height: number;
  /** First lane of its rank, and of its track. */
  firstOfRank: boolean;
  firstOfTrack: boolean;
}

export interface Layout {
  lanes: LaidLane[];
  height: number;
  /** Rank → where it begins. */
  tops: Map<number, number>;
}

export function readLanes(table: Columns): RankLanes[] {
  const [rank, source, row, events] = ["rank", "source", "row", "events"].map((name) => table.num(name));
  const track = table.text("track");
  const found = new Map<number, RankLanes>();
  for (let i = 0; i < table.length; i++) {
    const one = found.get(rank[i]) ?? { rank: rank[i], summary: [], recorded: [] };
    found.set(rank[i], one);
    const lane = {
      index: i,
      rank: rank[i],
      track: track[i] ?? "",
      row: row[i],
      events: events[i],
      recorded: source[i] === 1,
    };
    (lane.recorded ? one.recorded : one.summary).push(lane);
  }
  return [...found.values()];
}

const GAP = 6;

/** Ranks in the order given; a rank that has no summary shows its recorded tracks at once. */
export function layOut(ranks: RankLanes[], open: ReadonlySet<number>, laneHeight: number): Layout {
  const lanes: LaidLane[] = [];
  const tops = new Map<number, number>();
  let y = 2;
  for (const one of ranks) {
    tops.set(one.rank, y);
    const shown = open.has(one.rank) || one.summary.length === 0 ? [...one.summary, ...one.recorded] : one.summary;
    shown.forEach((lane, i) => {
      const height = lane.row > 0 ? Math.max(3, Math.round(laneHeight * 0.8)) : laneHeight;
      lanes.push({
        ...lane,
        y,
        height,
        firstOfRank: i === 0,
        firstOfTrack: i === 0 || shown[i - 1].track !== lane.track,
      });
      y += height + 1;
    });
    y += laneHeight > 6 ? GAP : 1;
  }
  return { lanes, height: y, tops };
}

/** Lanes that touch a vertical window: their first and last place, by bisection. */
export function visibleLanes(layout: Layout, top: number, bottom: number): LaidLane[] {
  let [low, high] = [0, layout.lanes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.lanes[middle].y + layout.lanes[middle].height < top) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < layout.lanes.length && layout.lanes[end].y < bottom) end++;
  return layout.lanes.slice(low, end);
}

/** [0,1,2,7] → "0-2,7", as the server takes it. */
export function laneList(lanes: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < lanes.length;) {
    let end = i;
    while (end + 1 < lanes.length && lanes[end + 1] === lanes[end] + 1) end++;
    parts.push(end > i ? `${lanes[i]}-${lanes[end]}` : String(lanes[i]));
    i = end + 1;
  }
  return parts.join(",");
}
