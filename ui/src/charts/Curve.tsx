// Series over time or position on a canvas: memory, counters, queues.
import { useCallback } from "preact/hooks";
import { hideTip, showTip } from "./tooltip";
import { variable } from "./color";
import { axisRange, linear, ticks } from "./scale";
import { useCanvas } from "./useCanvas";

export interface Series {
  name: string;
  /** CSS colour variable. */
  color: string;
  x: number[];
  y: number[];
  steps?: boolean;
  dashed?: boolean;
}

interface CurveProps {
  series: Series[];
  format: (value: number) => string;
  formatX: (value: number) => string;
  label: string;
  fromZero?: boolean;
  height?: number;
  /** Nothing lies between two whole numbers on the x axis: batches, steps. */
  whole?: boolean;
}

const LEFT = 74;
const BOTTOM = 24;

export function Curve({ series, format, formatX, label, fromZero = true, height = 220, whole = false }: CurveProps) {
  const all = series.flatMap((one) => one.y).filter(Number.isFinite);
  const low = all.reduce((least, value) => Math.min(least, value), Infinity);
  const high = all.reduce((most, value) => Math.max(most, value), -Infinity);
  const range = axisRange(low, high, fromZero);
  const xs = series.flatMap((one) => [one.x[0], one.x.at(-1)!]).filter(Number.isFinite);
  const span: [number, number] = [Math.min(...xs, Infinity), Math.max(...xs, -Infinity)];
  const draw = useCallback(
    (context: CanvasRenderingContext2D, width: number, tall: number) => {
      const x = linear(span, [LEFT, width - 12]);
      const y = linear(range, [tall - BOTTOM, 8]);
      context.font = `11px ${variable("font")}`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      for (const value of ticks(range[0], range[1], 4)) {
        context.strokeStyle = variable("rule");
        context.beginPath();
        context.moveTo(LEFT, Math.round(y(value)) + 0.5);
        context.lineTo(width, Math.round(y(value)) + 0.5);
        context.stroke();
        context.fillStyle = variable("ink-soft");
        context.fillText(format(value), LEFT - 8, y(value));
      }
      context.textAlign = "center";
      for (const value of ticks(span[0], span[1], 8).filter((tick) => !whole || Number.isInteger(tick)))
        context.fillText(formatX(value), Math.min(width - 24, Math.max(LEFT + 10, x(value))), tall - 9);
      for (const one of series) trace(context, one, x, y);
    },
    [series, format, formatX, range[0], range[1], span[0], span[1], whole],
  );
  const { ref, width } = useCanvas(draw, height);
  const onMove = (event: MouseEvent): void => {
    const at = linear([LEFT, width - 12], span)(event.offsetX);
    const lines = series.flatMap((one): [string, string][] => {
      const i = closest(one.x, at);
      return i < 0 ? [] : [[one.name, format(one.y[i])]];
    });
    if (at >= span[0] && at <= span[1]) showTip(event.clientX, event.clientY, { title: formatX(at), lines });
    else hideTip();
  };
  return (
    <div class="canvas">
      <canvas ref={ref} role="img" aria-label={label} onMouseMove={onMove} onMouseLeave={hideTip} />
    </div>
  );
}

function trace(
  context: CanvasRenderingContext2D,
  { x: xs, y: ys, color, steps, dashed }: Series,
  x: (v: number) => number,
  y: (v: number) => number,
): void {
  context.strokeStyle = variable(color);
  context.lineWidth = 1.8;
  context.setLineDash(dashed ? [5, 4] : []);
  context.beginPath();
  let drawing = false;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) {
      drawing = false;
      continue;
    }
    if (drawing && steps) context.lineTo(x(xs[i]), y(ys[i - 1]));
    if (drawing) context.lineTo(x(xs[i]), y(ys[i]));
    else context.moveTo(x(xs[i]), y(ys[i]));
    drawing = true;
  }
  context.stroke();
  context.setLineDash([]);
  context.lineWidth = 1;
}

/** The last point at or before a place. */
function closest(xs: number[], at: number): number {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
