// A column per rank, stacked upwards (and optionally one part downwards); 1,024 ranks fit side by side.
import { useCallback, useState } from "preact/hooks";
import { hideTip, showTip, type Tip } from "./tooltip";
import { duration, fixed } from "../i18n/numbers";
import { variable } from "./color";
import { axisRange, linear, ticks } from "./scale";
import { useCanvas } from "./useCanvas";

export interface Bar {
  rank: number;
  up: number[];
  down?: number;
}

interface RankBarsProps<B extends Bar> {
  bars: B[];
  /** Names of CSS colour variables, one per stacked part. */
  colors: string[];
  downColor?: string;
  marked: ReadonlySet<number>;
  tip: (bar: B) => Tip;
  label: string;
  height?: number;
  onPick?: ((rank: number) => void) | undefined;
}

const LEFT = 66;
const BOTTOM = 26;

export function RankBars<B extends Bar>({
  bars,
  colors,
  downColor,
  marked,
  tip,
  label,
  height = 220,
  onPick,
}: RankBarsProps<B>) {
  const [cursor, setCursor] = useState<number | null>(null);
  const high = bars.reduce((most, bar) => Math.max(most, sum(bar.up)), 0);
  const low = -bars.reduce((most, bar) => Math.max(most, bar.down ?? 0), 0);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, tall: number) => {
      const y = linear(paddedRange(low, high), [tall - BOTTOM, 8]);
      const slot = (width - LEFT) / Math.max(1, bars.length);
      drawAxis(context, { width, y, range: paddedRange(low, high) });
      const tops: { x: number; top: number; thick: number }[] = [];
      // Asking the style sheet costs more than a rectangle: ten thousand bars must not ask for each of their parts.
      const [paints, down, red, ink] = [
        colors.map(variable),
        downColor ? variable(downColor) : "",
        variable("culprit"),
        variable("ink"),
      ];
      bars.forEach((bar, i) => {
        const { x, thick } = column(i, slot);
        let at = 0;
        bar.up.forEach((value, part) => {
          context.fillStyle = bar.up.length === 1 && marked.has(bar.rank) ? red : paints[part];
          if (value > 0) context.fillRect(x, y(at + value), thick, Math.max(0, y(at) - y(at + value)));
          at += value;
        });
        if (bar.down && downColor) {
          context.fillStyle = down;
          context.fillRect(x, y(0), thick, y(-bar.down) - y(0));
        }
        if (marked.has(bar.rank)) tops.push({ x: x + thick / 2, top: y(at), thick });
        if (i === cursor) {
          context.strokeStyle = ink;
          context.strokeRect(x - 1.5, y(at) - 1.5, thick + 3, y(-(bar.down ?? 0)) - y(at) + 3);
        }
      });
      context.fillStyle = red;
      for (const { x, top, thick } of tops) markRank(context, x, top, thick);
      drawRankLabels(context, { bars, marked, slot, tall, width });
    },
    [bars, colors, downColor, marked, low, high, cursor],
  );
  const { ref, width } = useCanvas(draw, height);
  const indexAt = (x: number): number => Math.floor((x - LEFT) / ((width - LEFT) / bars.length));
  const onMove = (event: MouseEvent): void => {
    const bar = bars[indexAt(event.offsetX)];
    if (bar) showTip(event.clientX, event.clientY, tip(bar));
    else hideTip();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && cursor !== null && bars[cursor]) onPick?.(bars[cursor].rank);
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 16, PageUp: -16 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(bars.length - 1, Math.max(0, (cursor ?? -step) + step));
    setCursor(next);
    const box = ref.current?.getBoundingClientRect();
    if (box)
      showTip(box.left + LEFT + ((next + 0.5) / bars.length) * (width - LEFT), box.top + height / 2, tip(bars[next]));
  };
  return (
    <div class="canvas">
      <canvas
        ref={ref}
        tabIndex={0}
        role="application"
        aria-label={label}
        onMouseMove={onMove}
        onMouseLeave={hideTip}
        onBlur={() => {
          setCursor(null);
          hideTip();
        }}
        onClick={(event) => {
          const bar = bars[indexAt(event.offsetX)];
          if (bar) onPick?.(bar.rank);
        }}
        onKeyDown={onKeyDown}
        data-pick={onPick ? "" : undefined}
      />
    </div>
  );
}

/** Wide bars have gaps; narrow ones end on whole pixels, or a thousand of them shimmer. */
function column(i: number, slot: number): { x: number; thick: number } {
  if (slot > 4) {
    const thick = Math.min(34, slot * 0.78);
    return { x: LEFT + i * slot + (slot - thick) / 2, thick };
  }
  const x = Math.floor(LEFT + i * slot);
  return { x, thick: Math.max(1, Math.floor(LEFT + (i + 1) * slot) - x) };
}

function drawAxis(
  context: CanvasRenderingContext2D,
  { width, y, range }: { width: number; y: (value: number) => number; range: [number, number] },
): void {
  context.font = `11px ${variable("font")}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const marks = ticks(range[0], range[1], 4);
  const small = Math.max(...marks.map(Math.abs)) < 1;
  for (const value of marks) {
    context.strokeStyle = variable(value === 0 ? "ink-soft" : "rule");
    context.beginPath();
    context.moveTo(LEFT, Math.round(y(value)) + 0.5);
    context.lineTo(width, Math.round(y(value)) + 0.5);
    context.stroke();
    context.fillStyle = variable("ink-soft");
    const magnitude = Math.abs(value);
    context.fillText(
      magnitude === 0
        ? "0"
        : small
          ? duration(magnitude)
          : `${fixed(magnitude, Number.isInteger(magnitude) ? 0 : 1)} ms`,
      LEFT - 8,
      y(value),
    );
  }
}

/** A red triangle above the bar: shape and colour, for eyes that see no red. */
function markRank(context: CanvasRenderingContext2D, x: number, top: number, thick: number): void {
  const half = Math.max(4, Math.min(6, thick / 2));
  context.beginPath();
  context.moveTo(x - half, top - half * 2 - 2);
  context.lineTo(x + half, top - half * 2 - 2);
  context.lineTo(x, top - 2);
  context.fill();
}

function drawRankLabels(
  context: CanvasRenderingContext2D,
  {
    bars,
    marked,
    slot,
    tall,
    width,
  }: { bars: Bar[]; marked: ReadonlySet<number>; slot: number; tall: number; width: number },
): void {
  const widest = context.measureText(String(bars.at(-1)?.rank ?? 0)).width + 10;
  let every = 1;
  while (slot > 0 && every * slot < widest) every *= 2;
  context.textAlign = "center";
  const center = (i: number): number => LEFT + (i + 0.5) * slot;
  const red = bars
    .flatMap((bar, i) => (marked.has(bar.rank) ? [i] : []))
    .filter((_, n, all) => all.length <= 12 || n === 0);
  const write = (i: number, color: string, weight: string): void => {
    context.fillStyle = variable(color);
    context.font = `${weight}11px ${variable("font")}`;
    context.fillText(String(bars[i].rank), center(i), tall - BOTTOM / 2);
  };
  for (let i = 0; i < bars.length; i += every) {
    const outside = center(i) + widest / 2 - 5 > width;
    if (!outside && !red.some((other) => Math.abs(center(other) - center(i)) < widest)) write(i, "ink-soft", "");
  }
  for (const i of red) write(i, "culprit", "bold ");
}

function paddedRange(low: number, high: number): [number, number] {
  const range = axisRange(low, high);
  const room = (range[1] - low) * 0.06;
  return [low < 0 ? low - room : 0, range[1] + room];
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
