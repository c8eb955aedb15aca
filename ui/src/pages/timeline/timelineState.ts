// What the timeline shows, kept in the address of the page: ranks, unfolded ranks, lane size and time window.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Columns } from "../../api/columns";
import { readRankList } from "../../api/rankList";
import { useRunData } from "../../api/runData";
import type { View } from "../../charts/timelineDrawing";
import { layOut, readLanes, type Layout, type RankLanes } from "../../charts/timelineLanes";
import { useRouter, useSetting } from "../../components/router";

/** With more ranks than this lanes are thin at first. */
const MANY = 48;
const LANE_HEIGHT = { thin: 5, normal: 15 };

export interface LaneState {
  all: RankLanes[];
  layout: Layout;
  ranks: number;
  rankText: string;
  setRankText: (text: string) => void;
  thin: boolean;
  setThin: (thin: boolean) => void;
  open: ReadonlySet<number>;
  foldable: ReadonlySet<number>;
  fold: (rank: number) => void;
}

/** Which lanes are shown, where, and how to change that. */
export function useLanes(table: Columns): LaneState {
  const { cluster } = useRunData();
  const all = useMemo(
    () =>
      readLanes(table).sort((a, b) => (cluster.place.get(a.rank) ?? a.rank) - (cluster.place.get(b.rank) ?? b.rank)),
    [table, cluster],
  );
  const [rankText, setRankText] = useSetting("ranks");
  const [size, setSize] = useSetting("size", all.length > MANY ? "thin" : "normal");
  const thin = size === "thin";
  const shown = useMemo(() => {
    const wanted = readRankList(rankText);
    return rankText.trim() ? all.filter((one) => wanted?.includes(one.rank)) : all;
  }, [all, rankText]);
  const folding = useFolding(all);
  const layout = useMemo(
    () => layOut(shown, folding.open, thin ? LANE_HEIGHT.thin : LANE_HEIGHT.normal),
    [shown, folding.open, thin],
  );
  const setThin = (wanted: boolean): void => setSize(wanted ? "thin" : "normal");
  return { all, layout, ranks: shown.length, rankText, setRankText, thin, setThin, ...folding };
}

/** Ranks that have recorded tracks beside their summary can be unfolded. */
function useFolding(all: RankLanes[]): Pick<LaneState, "open" | "foldable" | "fold"> {
  const { place, set } = useRouter();
  const openText = place.query.get("open") ?? "";
  const open = useMemo(() => new Set(readRankList(openText)), [openText]);
  const foldable = useMemo(
    () => new Set(all.filter((one) => one.recorded.length > 0 && one.summary.length > 0).map((one) => one.rank)),
    [all],
  );
  const fold = useCallback(
    (rank: number) => {
      if (!foldable.has(rank)) return;
      const next = new Set(open);
      if (!next.delete(rank)) next.add(rank);
      set({ open: [...next].sort((a, b) => a - b).join(",") });
    },
    [open, foldable],
  );
  return { open, foldable, fold };
}

/** The time window; written to the address once it has not changed for a moment. */
export function useWindow(length: number): [View, (view: View) => void] {
  const { place, set } = useRouter();
  const [view, setView] = useState<View>(() => {
    const [begin, end] = [Number(place.query.get("from") ?? 0), Number(place.query.get("to") ?? length)];
    return end > begin ? inside({ begin, end }, length) : { begin: 0, end: length };
  });
  const timer = useRef(0);
  const change = (next: View): void => {
    setView(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const whole = next.begin <= 0 && next.end >= length;
      set({ from: whole ? null : Math.floor(next.begin), to: whole ? null : Math.ceil(next.end) });
    }, 350);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return [view, change];
}

/** The window moved so that it lies inside the recording. */
export function inside(view: View, length: number): View {
  const span = Math.min(length, view.end - view.begin);
  const begin = Math.max(0, Math.min(view.begin, length - span));
  return { begin, end: begin + span };
}
