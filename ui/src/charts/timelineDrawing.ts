// Drawing a timeline: lanes of slices, axis, gutter, critical path. Pure drawing, no state.
import type { LaidLane } from "./timelineLanes";
import type { Numbers } from "../api/columns";
import { duration } from "../i18n/numbers";
import { css, inkOn, mix, parseHex, variable, type Rgb } from "./color";
import { ticks } from "./scale";

export const GUTTER = 168;
export const AXIS = 26;

export interface View {
  /** ns since the beginning. */
  begin: number;
  end: number;
}

/** What the server sent for some lanes between two times. */
export interface Tile {
  view: View;
  lane: Numbers;
  start: Numbers;
  duration: Numbers;
  busy: Numbers;
  name: Numbers;
  kind: Numbers;
  count: Numbers;
  names: string[];
  /** Lane index → first and last slice. */
  ranges: Map<number, [number, number]>;
}

export interface PathSegment {
  rank: number;
  start: number;
  duration: number;
  kind: number;
  op: string;
}

/** Kind of the events that are steps. */
export const STEPS = 0;
const KIND_COLORS = ["tail", "compute", "exposed", "data", "waiting-deep", "free"];
/** How much of a merged block is events: full, most, some, little. */
const SHADES = [1, 0.75, 0.5, 0.3];

export interface Palette {
  fills: string[];
  inks: string[];
}

export function palette(): Palette {
  const paper = parseHex(variable("card"));
  const fills: string[] = [];
  const inks: string[] = [];
  for (const name of KIND_COLORS) {
    const color: Rgb = parseHex(variable(name));
    for (const shade of SHADES) {
      const mixed = mix(paper, color, shade);
      fills.push(css(mixed));
      inks.push(inkOn(mixed));
    }
  }
  return { fills, inks };
}

export interface Frame {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  view: View;
  scroll: number;
  colors: Palette;
}

export const xOf = (frame: { view: View; width: number }, time: number): number =>
  GUTTER + ((time - frame.view.begin) / (frame.view.end - frame.view.begin)) * (frame.width - GUTTER);

export const timeAt = (frame: { view: View; width: number }, x: number): number =>
  frame.view.begin + ((x - GUTTER) / (frame.width - GUTTER)) * (frame.view.end - frame.view.begin);

export function drawSlices(frame: Frame, lanes: LaidLane[], tile: Tile, highlight: ReadonlySet<number>): void {
  const { context, view, width, scroll, colors } = frame;
  const scale = (width - GUTTER) / (view.end - view.begin);
  const shades = SHADES.length;
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, width - GUTTER, frame.height - AXIS);
  context.clip();
  const labels: [number, number, number, LaidLane][] = [];
  for (const lane of lanes) {
    const range = tile.ranges.get(lane.index);
    if (!range) continue;
    const y = AXIS + lane.y - scroll;
    let current = -1;
    for (let i = range[0]; i < range[1]; i++) {
      const x = GUTTER + (tile.start[i] - view.begin) * scale;
      const wide = tile.duration[i] * scale;
      if (x > width || x + wide < GUTTER) continue;
      const full = tile.count[i] > 1 ? tile.busy[i] / (tile.duration[i] || 1) : 1;
      const color = tile.kind[i] * shades + (full > 0.85 ? 0 : full > 0.6 ? 1 : full > 0.3 ? 2 : 3);
      // Colours change seldom along a lane, and setting one is what costs.
      if (color !== current) {
        context.fillStyle = colors.fills[color];
        current = color;
      }
      context.fillRect(x, y, wide > 1.5 ? wide - 0.5 : Math.max(1, wide), lane.height);
      if (wide > 34 && lane.height >= 11)
        labels.push([i, Math.max(GUTTER, x), Math.min(width, x + wide) - Math.max(GUTTER, x), lane]);
    }
  }
  drawLabels(frame, labels, tile);
  if (highlight.size) outlineHits(frame, lanes, tile, highlight);
  context.restore();
}

function drawLabels(frame: Frame, labels: [number, number, number, LaidLane][], tile: Tile): void {
  const { context, colors } = frame;
  context.font = `10.5px ${variable("font")}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const [i, x, wide, lane] of labels) {
    if (wide < 34) continue;
    context.fillStyle = colors.inks[tile.kind[i] * SHADES.length];
    const name = tile.names[tile.name[i]];
    context.fillText(
      fit(
        tile.count[i] > 1 ? `${name} … ×${tile.count[i]}` : tile.kind[i] === STEPS ? shortened(name, wide - 6) : name,
        wide - 6,
      ),
      x + 3,
      AXIS + lane.y - frame.scroll + lane.height / 2 + 0.5,
    );
  }
}

/** A step that is too narrow for its name keeps its number. */
const shortened = (name: string, width: number): string => (name.length * 6 <= width ? name : name.replace(/\D+/g, ""));

/** Cheap: about six pixels a letter; measuring thousands of texts would cost more than drawing them. */
const fit = (text: string, width: number): string =>
  text.length * 6 <= width ? text : `${text.slice(0, Math.max(1, Math.floor(width / 6) - 1))}…`;

function outlineHits(frame: Frame, lanes: LaidLane[], tile: Tile, highlight: ReadonlySet<number>): void {
  const { context } = frame;
  context.strokeStyle = variable("ink");
  context.lineWidth = 1.5;
  for (const lane of lanes) {
    const range = tile.ranges.get(lane.index);
    if (!range) continue;
    for (let i = range[0]; i < range[1]; i++) {
      if (!highlight.has(tile.name[i])) continue;
      const x = xOf(frame, tile.start[i]);
      context.strokeRect(
        x,
        AXIS + lane.y - frame.scroll - 0.5,
        Math.max(2, xOf(frame, tile.start[i] + tile.duration[i]) - x),
        lane.height + 1,
      );
    }
  }
  context.lineWidth = 1;
}

export function drawAxis({ context, width, height, view }: Frame): void {
  context.fillStyle = variable("card");
  context.fillRect(0, 0, width, AXIS);
  context.font = `11px ${variable("font")}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const at of ticks(view.begin / 1e6, view.end / 1e6, Math.max(2, Math.floor((width - GUTTER) / 110)))) {
    const x = Math.round(xOf({ view, width }, at * 1e6)) + 0.5;
    if (x < GUTTER) continue;
    context.strokeStyle = variable("rule");
    context.beginPath();
    context.moveTo(x, AXIS - 6);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = variable("ink-soft");
    const text = label(at, view);
    if (x > GUTTER + 24 && x + context.measureText(text).width / 2 < width - 2) context.fillText(text, x, AXIS / 2 - 1);
  }
}

/** Enough digits to tell neighbouring ticks apart. */
function label(ms: number, view: View): string {
  const span = (view.end - view.begin) / 1e6;
  if (span > 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (span > 10) return `${ms.toLocaleString("en-US", { maximumFractionDigits: 1 })} ms`;
  if (span > 0.05) return `${ms.toLocaleString("en-US", { maximumFractionDigits: 3 })} ms`;
  return `${(ms * 1000).toLocaleString("en-US", { maximumFractionDigits: 3 })} µs`;
}

export interface GutterWords {
  rank: (rank: number) => string;
  track: (track: string) => string;
}

export function drawGutter(
  frame: Frame,
  lanes: LaidLane[],
  how: {
    open: ReadonlySet<number>;
    marked: ReadonlySet<number>;
    cursor: number | null;
    words: GutterWords;
    foldable: ReadonlySet<number>;
  },
): void {
  const { context, height, scroll } = frame;
  context.save();
  context.beginPath();
  context.rect(0, AXIS, GUTTER, height - AXIS);
  context.clip();
  context.fillStyle = variable("card");
  context.fillRect(0, AXIS, GUTTER, height - AXIS);
  context.textBaseline = "middle";
  let free = -Infinity;
  for (const lane of lanes) {
    const y = AXIS + lane.y - scroll + lane.height / 2;
    const thin = lane.height < 9;
    if (lane.firstOfRank && y - free >= 11) {
      const red = how.marked.has(lane.rank);
      context.textAlign = "left";
      context.fillStyle = variable(red ? "culprit" : "ink");
      // Thin lanes lie closer than a line of text: smaller letters, and the first one below the axis.
      context.font = `${red ? "700" : thin ? "500" : "600"} ${thin ? 10 : 11.5}px ${variable("font")}`;
      const mark = how.foldable.has(lane.rank) ? (how.open.has(lane.rank) ? "▾ " : "▸ ") : "   ";
      context.fillText(mark + how.words.rank(lane.rank), 4, y >= AXIS ? Math.max(y, AXIS + 7) : y);
      if (how.cursor === lane.rank) {
        context.strokeStyle = variable("link");
        context.strokeRect(1.5, y - 8, GUTTER - 6, 16);
      }
      free = y;
    }
    if (lane.firstOfTrack && lane.height >= 9) {
      context.textAlign = "right";
      context.fillStyle = variable("ink-soft");
      context.font = `10.5px ${variable("font")}`;
      context.fillText(fit(how.words.track(lane.track), lane.firstOfRank ? 84 : GUTTER - 24), GUTTER - 8, y);
    }
  }
  context.restore();
  context.strokeStyle = variable("rule");
  context.beginPath();
  context.moveTo(GUTTER - 0.5, 0);
  context.lineTo(GUTTER - 0.5, height);
  context.stroke();
}

/** The chain that decides the step: along a rank while it works, across ranks where data moves. */
export function drawPath(frame: Frame, path: PathSegment[], laneY: (rank: number) => number | null): void {
  const { context, width, height, view, scroll } = frame;
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
  context.clip();
  context.lineCap = "round";
  let before: { x: number; y: number } | null = null;
  for (const segment of path) {
    const y0 = laneY(segment.rank);
    if (y0 === null) {
      before = null;
      continue;
    }
    const y = AXIS + y0 - scroll;
    const [x0, x1] = [xOf(frame, segment.start), xOf(frame, segment.start + segment.duration)];
    if (x1 < GUTTER || segment.start > view.end) {
      before = { x: x1, y };
      continue;
    }
    context.strokeStyle = variable("ink");
    if (before && Math.abs(before.y - y) > 1) {
      context.lineWidth = 1.2;
      context.beginPath();
      context.moveTo(before.x, before.y);
      context.lineTo(x0, y);
      context.stroke();
    }
    context.lineWidth = 3;
    context.setLineDash(segment.kind === 1 ? [5, 4] : []);
    context.beginPath();
    context.moveTo(x0, y);
    context.lineTo(Math.max(x0 + 0.5, x1), y);
    context.stroke();
    context.setLineDash([]);
    before = { x: x1, y };
  }
  context.restore();
  context.lineWidth = 1;
}

export function drawSelection(frame: Frame, selection: View & { top: number; bottom: number }): void {
  const { context, scroll } = frame;
  const [x0, x1] = [Math.max(GUTTER, xOf(frame, selection.begin)), xOf(frame, selection.end)];
  context.fillStyle = variable("link");
  context.globalAlpha = 0.16;
  context.fillRect(x0, AXIS + selection.top - scroll, x1 - x0, selection.bottom - selection.top);
  context.globalAlpha = 1;
  context.strokeStyle = variable("link");
  context.strokeRect(x0 + 0.5, AXIS + selection.top - scroll, x1 - x0, selection.bottom - selection.top);
  context.font = `600 11px ${variable("font")}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const text = duration((selection.end - selection.begin) / 1e6);
  const y = AXIS + Math.max(0, selection.top - scroll);
  context.fillStyle = variable("card");
  context.fillRect(x0 + 1, y + 1, context.measureText(text).width + 10, 16);
  context.fillStyle = variable("ink");
  context.fillText(text, x0 + 6, y + 9.5);
}
