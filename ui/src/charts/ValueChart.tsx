// Values with their intervals, of reports that are tables and words otherwise: over a count, as bars, or as a trend.
import { useRef } from "preact/hooks";
import { decimalsFor, fixed } from "../i18n/numbers";
import { axisRange, linear, ticks, type Scale } from "./scale";
import { useWidth } from "./useCanvas";

export interface ValuePoint {
  label: string;
  value: number;
  deviation: number | null;
  count: number | null;
  culprit: boolean;
}

/** As paceline/output/page/charts.py writes it. */
export interface ValueChartData {
  kind: "line" | "bars" | "trend";
  title: string;
  points: ValuePoint[];
  axes: [x: string, y: string];
  /** Of a line: the values, and the straight line from zero through the first of them. */
  legend: string[];
}

const HEIGHT = 260;
const LEFT = 74;
const TOP = 26;
const BOTTOM = 52;
const LABEL = 74;

export function ValueChart({ data }: { data: ValueChartData }) {
  const ref = useRef<SVGSVGElement>(null);
  const width = useWidth(ref as unknown as { current: HTMLElement | null });
  const range = valueRange(data);
  const y = linear(range, [HEIGHT - BOTTOM, TOP]);
  const x = places(data, width);
  const every = Math.max(1, Math.ceil((data.points.length * LABEL) / Math.max(1, width - LEFT)));
  return (
    <figure class="canvas values">
      <figcaption>{data.title}</figcaption>
      {data.legend.length > 1 && <Legend names={data.legend} />}
      <svg ref={ref} class="lines" width={width} height={HEIGHT} role="img" aria-label={data.title}>
        {ticks(range[0], range[1], 4).map((value) => (
          <g key={value}>
            <line class="rule" x1={LEFT} x2={width} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 8} y={y(value) + 4} text-anchor="end">
              {tickText(value)}
            </text>
          </g>
        ))}
        <text x={0} y={12}>
          {data.axes[1]}
        </text>
        <text x={width} y={HEIGHT - 6} text-anchor="end">
          {data.axes[0]}
        </text>
        {data.kind === "line" && <path class="line ideal" d={idealLine(data.points, x, y)} />}
        {data.kind !== "bars" && <path class="line value" d={polyline(data.points, x, y)} />}
        {data.points.map((point, i) => (
          <g key={i}>
            <title>{pointText(point)}</title>
            {data.kind === "bars" ? (
              <rect
                class={point.culprit ? "culprit" : "value"}
                x={x(i) - barWidth(data, width) / 2}
                width={barWidth(data, width)}
                y={y(point.value)}
                height={Math.max(0, HEIGHT - BOTTOM - y(point.value))}
              />
            ) : (
              <circle class={point.culprit ? "culprit" : "value"} cx={x(i)} cy={y(point.value)} r={4} />
            )}
            {point.deviation !== null && <path class="whisker" d={whisker(x(i), point, range, y)} />}
            {i % every === 0 && (
              <text x={x(i)} y={HEIGHT - BOTTOM + 18} text-anchor="middle">
                {point.label}
              </text>
            )}
          </g>
        ))}
      </svg>
    </figure>
  );
}

function Legend({ names }: { names: string[] }) {
  return (
    <ul class="legend">
      <li>
        <i class="value" />
        {names[0]}
      </li>
      <li>
        <i class="ideal" />
        {names[1]}
      </li>
    </ul>
  );
}

/** Bars start at zero; a trend starts near its values, and shows at least a tenth of the largest. */
export function valueRange({ kind, points }: ValueChartData): [number, number] {
  const low = Math.min(...points.map((point) => point.value - (point.deviation ?? 0)));
  const highest = Math.max(...points.map((point) => point.value + Math.min(point.deviation ?? 0, point.value)));
  const ideal = kind === "line" ? idealAt(points, Math.max(...points.map(countOf))) : highest;
  const high = Math.max(highest, ideal);
  if (kind !== "trend") return axisRange(0, high);
  return axisRange(Math.max(0, Math.min(low, 0.9 * high)), high, false);
}

const countOf = (point: ValuePoint): number => point.count ?? 0;

const idealAt = (points: ValuePoint[], count: number): number =>
  countOf(points[0]) > 0 ? (points[0].value / countOf(points[0])) * count : points[0].value;

/** From a point's place among the points to its place on the x axis. */
function places({ kind, points }: ValueChartData, width: number): Scale {
  const right = Math.max(LEFT + 1, width - 24);
  if (kind === "line") {
    const scale = linear([0, Math.max(...points.map(countOf))], [LEFT, right]);
    return (i) => scale(countOf(points[i]));
  }
  const slot = (right - LEFT) / points.length;
  return (i) => LEFT + slot * (i + 0.5);
}

const barWidth = ({ points }: ValueChartData, width: number): number =>
  Math.max(1, ((width - 24 - LEFT) / points.length) * 0.7);

function idealLine(points: ValuePoint[], x: Scale, y: Scale): string {
  const last = points.reduce((most, point, i) => (countOf(point) > countOf(points[most]) ? i : most), 0);
  return `M${LEFT} ${y(0)}L${x(last)} ${y(idealAt(points, countOf(points[last])))}`;
}

const polyline = (points: ValuePoint[], x: Scale, y: Scale): string =>
  points.map((point, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(point.value).toFixed(1)}`).join("");

/** A whisker that is longer than the chart ends at its edge. */
function whisker(at: number, { value, deviation }: ValuePoint, [low, high]: [number, number], y: Scale): string {
  const [top, bottom] = [y(Math.min(high, value + deviation!)), y(Math.max(low, value - deviation!))];
  return `M${at - 4} ${top}h8m-4 0V${bottom}m-4 0h8`;
}

const pointText = ({ label, value, deviation }: ValuePoint): string =>
  `${label}: ${fixed(value, decimalsFor(value))}${deviation === null ? "" : ` ± ${fixed(deviation, decimalsFor(deviation))}`}`;

const tickText = (value: number): string => fixed(value, Number.isInteger(value) ? 0 : decimalsFor(value));
