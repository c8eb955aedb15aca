// Step time and compute over the steps, as lines with a band from the fastest to the slowest rank.
import { useRef } from "preact/hooks";
import { hideTip, showTip } from "./tooltip";
import type { Columns, Numbers } from "../api/columns";
import { duration, fixed } from "../i18n/numbers";
import { useText } from "../i18n/text";
import { axisRange, linear, ticks, type Scale } from "./scale";
import { useWidth } from "./useCanvas";

const HEIGHT = 240;
const LEFT = 66;

interface StepChartProps {
  steps: Columns;
  /** Ranks and steps that a finding accuses. */
  ranks: ReadonlySet<number>;
  marked: ReadonlySet<number>;
}

export function StepChart({ steps, ranks, marked }: StepChartProps) {
  const t = useText();
  const ref = useRef<SVGSVGElement>(null);
  const width = useWidth(ref as unknown as { current: HTMLElement | null });
  const step = steps.num("step");
  const n = steps.length;
  const range = axisRange(0, Math.max(...Array.from(steps.num("step_max"))));
  const x = linear([0, Math.max(1, n - 1)], [LEFT + 16, Math.max(LEFT + 32, width - 16)]);
  const y = linear(range, [HEIGHT - 34, 8]);
  const line = (values: Numbers): string => path(values, x, y);
  const every = Math.max(1, Math.ceil((n * 34) / Math.max(1, width - LEFT)));
  const onMove = (event: MouseEvent): void => {
    const i = Math.round(linear([x(0), x(Math.max(1, n - 1))], [0, Math.max(1, n - 1)])(event.offsetX));
    if (i < 0 || i >= n) return;
    showTip(event.clientX, event.clientY, {
      title: t("ui.steps.tip", { n: step[i] }),
      lines: [
        [t("ui.steps.step"), duration(steps.num("step_median")[i])],
        [t("ui.steps.band"), `${duration(steps.num("step_min")[i])} … ${duration(steps.num("step_max")[i])}`],
        [t("ui.steps.compute"), duration(steps.num("compute_median")[i])],
        [t("ui.steps.slowestrank", { n: steps.num("slowest")[i] }), duration(steps.num("compute_max")[i])],
      ],
    });
  };
  return (
    <div class="canvas">
      <svg
        ref={ref}
        class="lines"
        width={width}
        height={HEIGHT}
        onMouseMove={onMove}
        onMouseLeave={hideTip}
        role="img"
        aria-label={t("ui.steps.title")}
      >
        {ticks(range[0], range[1], 4).map((value) => (
          <g key={value}>
            <line class="rule" x1={LEFT} x2={width} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 8} y={y(value) + 4} text-anchor="end">
              {value === 0 ? "0" : `${fixed(value, Number.isInteger(value) ? 0 : 1)} ms`}
            </text>
          </g>
        ))}
        <path class="band" d={band(steps.num("step_min"), steps.num("step_max"), x, y)} />
        <path class="line step" d={line(steps.num("step_median"))} />
        <path class="line slowest" d={line(steps.num("compute_max"))} />
        <path class="line compute" d={line(steps.num("compute_median"))} />
        {Array.from({ length: n }, (_, i) => (
          <g key={i}>
            {n <= 60 && <circle class="step" cx={x(i)} cy={y(steps.num("step_median")[i])} r={2.5} />}
            {marked.has(step[i]) && <path class="culprit" d={triangle(x(i), y(steps.num("step_max")[i]))} />}
            {ranks.has(steps.num("slowest")[i]) && (
              <path class="culprit" d={triangle(x(i), y(steps.num("compute_max")[i]))} />
            )}
            {i % every === 0 && (
              <text x={x(i)} y={HEIGHT - 14} text-anchor="middle">
                {step[i]}
              </text>
            )}
          </g>
        ))}
      </svg>
    </div>
  );
}

function path(values: Numbers, x: Scale, y: Scale): string {
  let drawing = false;
  return Array.from(values, (value, i) => {
    if (!Number.isFinite(value)) {
      drawing = false;
      return "";
    }
    const command = drawing ? "L" : "M";
    drawing = true;
    return `${command}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  }).join("");
}

function band(low: Numbers, high: Numbers, x: Scale, y: Scale): string {
  const up = Array.from(high, (value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`);
  const down = Array.from(low, (value, i) => `L${x(i).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
  return `${up.join("")}${down.join("")}Z`;
}

const triangle = (x: number, y: number): string => `M${x - 5} ${y - 13}h10l-5 9z`;
