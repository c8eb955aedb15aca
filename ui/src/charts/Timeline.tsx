// The timeline: pan, zoom, fold, select. What is drawn comes in tiles of the detail the screen can show.
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "./tooltip";
import { visibleLanes, type LaidLane, type Layout } from "./timelineLanes";
import { clamp } from "./scale";
import {
  AXIS,
  drawAxis,
  drawGutter,
  drawPath,
  drawSelection,
  drawSlices,
  GUTTER,
  palette,
  timeAt,
  type Frame,
  type GutterWords,
  type PathSegment,
  type Tile,
  type View,
} from "./timelineDrawing";
import { variable } from "./color";
import { ThemeContext, timed, useWidth } from "./useCanvas";

export interface Selection extends View {
  lanes: LaidLane[];
  top: number;
  bottom: number;
}

interface TimelineProps {
  layout: Layout;
  length: number;
  view: View;
  onView: (view: View) => void;
  fetchTile: (lanes: LaidLane[], view: View, width: number, signal: AbortSignal) => Promise<Tile>;
  open: ReadonlySet<number>;
  foldable: ReadonlySet<number>;
  onFold: (rank: number) => void;
  marked: ReadonlySet<number>;
  path: PathSegment[];
  search: string;
  selecting: boolean;
  onSelect: (selection: Selection | null) => void;
  onVisible: (lanes: LaidLane[]) => void;
  tip: (tile: Tile, slice: number, lane: LaidLane) => Tip;
  words: GutterWords;
  label: string;
  height: number;
  /** Scrolls this rank into sight when it changes. */
  show: number | null;
}

/** ns that a window shows at least. */
const CLOSEST = 200;
const AHEAD = 0.5;

export function Timeline(props: TimelineProps) {
  const { layout, length, view, height, selecting } = props;
  const ref = useRef<HTMLCanvasElement>(null);
  const width = useWidth(ref);
  const theme = useContext(ThemeContext);
  const [scroll, setScroll] = useState(0);
  const [tile, setTile] = useState<Tile | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const [selection, setSelection] = useState<Selection | null>(null);
  const drag = useRef<{ x: number; y: number; view: View; scroll: number; select: boolean; moved: boolean } | null>(
    null,
  );
  const plot = height - AXIS;
  const most = Math.max(0, layout.height - plot);
  const top = Math.min(scroll, most);
  const lanes = visibleLanes(layout, top, top + plot);
  const first = lanes[0]?.index;
  const last = lanes.at(-1)?.index;
  useEffect(() => props.onVisible(lanes), [first, last, lanes.length]);
  useEffect(() => setSelection(null), [layout]);

  useEffect(() => {
    const at = props.show === null ? undefined : layout.tops.get(props.show);
    if (at !== undefined && (at < top || at > top + plot - 40)) setScroll(clamp(at - plot / 3, 0, most));
  }, [props.show, layout]);

  // A tile reaches half a window further on both sides, so that panning finds something there.
  useEffect(() => {
    if (width === 0 || lanes.length === 0) return undefined;
    const cancel = new AbortController();
    const span = view.end - view.begin;
    const wanted = {
      begin: Math.max(0, Math.floor(view.begin - AHEAD * span)),
      end: Math.min(length, Math.ceil(view.end + AHEAD * span)),
    };
    const pixels = clamp(Math.round((width - GUTTER) * ((wanted.end - wanted.begin) / span)), 64, 4096);
    const timer = setTimeout(
      () => {
        props.fetchTile(lanes, wanted, pixels, cancel.signal).then(setTile, () => {
          /* a newer window has taken its place */
        });
      },
      tile ? 50 : 0,
    );
    return () => {
      clearTimeout(timer);
      cancel.abort();
    };
  }, [view.begin, view.end, first, last, lanes.length, width, layout]);

  useLayoutEffect(() => {
    const canvas = ref.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = variable("card");
    context.fillRect(0, 0, width, height);
    const frame: Frame = { context, width, height, view, scroll: top, colors: palette() };
    timed("timeline", () => {
      drawAxis(frame);
      if (tile) drawSlices(frame, lanes, tile, hits(tile, props.search));
      if (props.path.length) drawPath(frame, props.path, (rank) => pathY(layout, rank));
      if (selection) drawSelection(frame, selection);
      drawGutter(frame, lanes, {
        open: props.open,
        marked: props.marked,
        cursor,
        words: props.words,
        foldable: props.foldable,
      });
      if (most > 0) drawScrollBar(frame, layout.height, top);
    });
    canvas.dataset["drawn"] = String(tile ? tile.start.length : 0);
  }, [
    tile,
    view,
    top,
    width,
    height,
    layout,
    theme,
    props.path,
    props.search,
    props.marked,
    props.open,
    selection,
    cursor,
  ]);

  const zoom = (factor: number, at: number): void => {
    const span = clamp((view.end - view.begin) * factor, CLOSEST, length);
    const begin = clamp(at - (at - view.begin) * (span / (view.end - view.begin)), 0, length - span);
    props.onView({ begin, end: begin + span });
  };
  const pan = (share: number): void => {
    const span = view.end - view.begin;
    const begin = clamp(view.begin + share * span, 0, length - span);
    props.onView({ begin, end: begin + span });
  };
  // Added by hand because Preact's handler would be passive.
  useEffect(() => {
    const canvas = ref.current;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey)
        zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, timeAt({ view, width }, Math.max(GUTTER, event.offsetX)));
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        pan((event.deltaX || event.deltaY) / (width - GUTTER));
      else if (most > 0) setScroll(clamp(top + event.deltaY, 0, most));
      else scrollBy(0, event.deltaY);
    };
    canvas?.addEventListener("wheel", onWheel, { passive: false });
    return () => canvas?.removeEventListener("wheel", onWheel);
  });
  const laneAt = (y: number): LaidLane | undefined =>
    lanes.find((lane) => y - AXIS + top >= lane.y && y - AXIS + top <= lane.y + lane.height);
  const onMove = (event: PointerEvent): void => {
    const start = drag.current;
    if (start) {
      const far = Math.abs(start.x - event.offsetX) + Math.abs(start.y - event.offsetY) > 3;
      if (far || start.moved) {
        start.moved = true;
        hideTip();
        if (start.select) setSelection(selected(start, event));
        else {
          const span = start.view.end - start.view.begin;
          const begin = clamp(
            start.view.begin - ((event.offsetX - start.x) / (width - GUTTER)) * span,
            0,
            length - span,
          );
          props.onView({ begin, end: begin + span });
          setScroll(clamp(start.scroll - (event.offsetY - start.y), 0, most));
        }
      }
      return;
    }
    const lane = laneAt(event.offsetY);
    const slice =
      lane && tile && event.offsetX > GUTTER
        ? sliceAt(tile, lane, timeAt({ view, width }, event.offsetX), (2 * (view.end - view.begin)) / width)
        : -1;
    if (lane && tile && slice >= 0) showTip(event.clientX, event.clientY, props.tip(tile, slice, lane));
    else hideTip();
  };
  const selected = (start: { x: number; y: number }, event: PointerEvent): Selection => {
    const [x0, x1] = [Math.min(start.x, event.offsetX), Math.max(start.x, event.offsetX)];
    const [y0, y1] = [Math.min(start.y, event.offsetY) - AXIS + top, Math.max(start.y, event.offsetY) - AXIS + top];
    const inside = lanes.filter((lane) => lane.y + lane.height >= y0 && lane.y <= y1);
    const chosen = inside.length ? inside : lanes;
    const end = chosen.at(-1)!;
    return {
      begin: Math.floor(clamp(timeAt({ view, width }, x0), 0, length)),
      end: Math.ceil(clamp(timeAt({ view, width }, x1), 1, length)),
      lanes: chosen,
      top: chosen[0].y,
      bottom: end.y + end.height,
    };
  };
  const onUp = (event: PointerEvent): void => {
    const start = drag.current;
    drag.current = null;
    if (start?.select && start.moved) props.onSelect(selected(start, event));
    else if (start && !start.moved) {
      const lane = laneAt(event.offsetY);
      if (lane && event.offsetX < GUTTER) props.onFold(lane.rank);
      else if (selection) {
        setSelection(null);
        props.onSelect(null);
      }
    }
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const middle = (view.begin + view.end) / 2;
    const ranks = [...layout.tops.keys()];
    const place = cursor === null ? -1 : ranks.indexOf(cursor);
    const stepTo = (next: number): void => {
      const rank = ranks[clamp(next, 0, ranks.length - 1)];
      setCursor(rank);
      const at = layout.tops.get(rank) ?? 0;
      if (at < top || at > top + plot - 60) setScroll(clamp(at - plot / 3, 0, most));
    };
    const actions: Record<string, () => void> = {
      ArrowLeft: () => pan(-0.2),
      ArrowRight: () => pan(0.2),
      a: () => pan(-0.2),
      d: () => pan(0.2),
      w: () => zoom(0.6, middle),
      s: () => zoom(1.6, middle),
      "+": () => zoom(0.6, middle),
      "=": () => zoom(0.6, middle),
      "-": () => zoom(1.6, middle),
      "0": () => props.onView({ begin: 0, end: length }),
      ArrowDown: () => stepTo(place + 1),
      ArrowUp: () => stepTo(Math.max(0, place - 1)),
      PageDown: () => setScroll(clamp(top + plot * 0.9, 0, most)),
      PageUp: () => setScroll(clamp(top - plot * 0.9, 0, most)),
      Enter: () => {
        if (cursor !== null) props.onFold(cursor);
      },
      Escape: () => {
        setSelection(null);
        props.onSelect(null);
      },
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };
  return (
    <div class="canvas timeline">
      <canvas
        ref={ref}
        tabIndex={0}
        role="application"
        aria-label={props.label}
        class={selecting ? "selecting" : undefined}
        onPointerDown={(event) => {
          drag.current = {
            x: event.offsetX,
            y: event.offsetY,
            view,
            scroll: top,
            select: (selecting || event.shiftKey) && event.offsetX > GUTTER,
            moved: false,
          };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={onMove}
        onPointerUp={onUp}
        onPointerCancel={() => {
          drag.current = null;
        }}
        onPointerLeave={hideTip}
        onDblClick={(event) => {
          if (event.offsetX > GUTTER) zoom(0.4, timeAt({ view, width }, event.offsetX));
        }}
        onKeyDown={onKeyDown}
        onBlur={hideTip}
      />
    </div>
  );
}

/** Where the path runs: over the rank's computing lane, or its first one. */
function pathY(layout: Layout, rank: number): number | null {
  const at = layout.tops.get(rank);
  if (at === undefined) return null;
  const lane = visibleLanes(layout, at, at + 40).find(
    (one) => one.rank === rank && (one.track === "computing" || one.track === "communication"),
  );
  return lane ? lane.y + lane.height / 2 : at + 6;
}

/** The slice of a lane at a time, or the nearest one within reach. */
export function sliceAt(tile: Tile, lane: LaidLane, time: number, reach: number): number {
  const range = tile.ranges.get(lane.index);
  if (!range) return -1;
  let [low, high] = range;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tile.start[middle] <= time) low = middle + 1;
    else high = middle;
  }
  const before = low - 1;
  if (before >= range[0] && time <= tile.start[before] + tile.duration[before] + reach) return before;
  return low < range[1] && tile.start[low] - time <= reach ? low : -1;
}

function hits(tile: Tile, search: string): ReadonlySet<number> {
  const wanted = search.trim().toLowerCase();
  if (!wanted) return new Set();
  return new Set(tile.names.flatMap((name, i) => (name.toLowerCase().includes(wanted) ? [i] : [])));
}

function drawScrollBar({ context, width, height }: Frame, whole: number, top: number): void {
  const plot = height - AXIS;
  context.fillStyle = variable("waiting");
  context.globalAlpha = 0.7;
  context.fillRect(width - 6, AXIS + (top / whole) * plot, 5, Math.max(18, (plot / whole) * plot));
  context.globalAlpha = 1;
}
