// Tiles of the timeline: fetched for the visible lanes and window, decoded from the server's columns.
import { useCallback, useState } from "preact/hooks";
import type { BinaryTable } from "../../api/binaryColumns";
import { address, getColumns, Problem } from "../../api/client";
import { STEPS, type PathSegment, type Tile, type View } from "../../charts/timelineDrawing";
import { laneList, type LaidLane } from "../../charts/timelineLanes";
import { useText } from "../../i18n/text";

type FetchTile = (lanes: LaidLane[], view: View, width: number, signal: AbortSignal) => Promise<Tile>;

/** A function that fetches one tile, and the problem of the last try. */
export function useTiles(path: string): [FetchTile, Problem | null] {
  const t = useText();
  const [problem, setProblem] = useState<Problem | null>(null);
  const fetchTile = useCallback<FetchTile>(
    async (lanes, view, width, signal) => {
      const indexes = lanes.map((lane) => lane.index).sort((a, b) => a - b);
      const query = { begin: view.begin, end: view.end, width, lanes: laneList(indexes) };
      try {
        const answer = await getColumns(address(`${path}/slices`, query), signal);
        setProblem(null);
        return tileOf(answer, indexes, view, (n) => t("ui.steps.tip", { n }));
      } catch (error) {
        if (!signal.aborted && error instanceof Problem) setProblem(error);
        throw error;
      }
    },
    [path, t],
  );
  return [fetchTile, problem];
}

function tileOf({ columns, about }: BinaryTable, lanes: number[], view: View, stepName: (n: string) => string): Tile {
  const lane = columns.num("lane");
  const ranges = new Map<number, [number, number]>();
  for (let i = 0; i < columns.length;) {
    let end = i;
    while (end < columns.length && lane[end] === lane[i]) end++;
    ranges.set(lanes[lane[i]], [i, end]);
    i = end;
  }
  const [start, length, busy, name, kind, merged] = ["start", "duration", "busy", "name", "kind", "count"].map((one) =>
    columns.num(one),
  );
  const names = [...(about["names"] as string[])];
  // The server names steps in English; recorded events keep the names they have.
  for (const at of new Set(Array.from(name).filter((_, i) => kind[i] === STEPS)))
    names[at] = names[at].replace(/^step (\d+)$/, (_, n: string) => stepName(n));
  return { view, lane, start, duration: length, busy, name, kind, count: merged, names, ranges };
}

/** The critical path, as the server sends it. */
export function segmentsOf({ columns }: BinaryTable): PathSegment[] {
  const [rank, start, length, kind] = ["rank", "start", "duration", "kind"].map((name) => columns.num(name));
  const op = columns.text("op");
  return Array.from({ length: columns.length }, (_, i) => ({
    rank: rank[i],
    start: start[i],
    duration: length[i],
    kind: kind[i],
    op: op[i] ?? "",
  }));
}
