// One bar of a step: its parts side by side in the product's colours.
import { knowsPhasesOnly, PARTS, type Part } from "../api/cluster";
import { duration, percent } from "../i18n/numbers";
import { useText, type Key } from "../i18n/text";
import { hideTip, showTip } from "../charts/tooltip";

interface StackedBarProps {
  parts: Record<Part, number>;
  scale: number;
  title: string;
}

export function StackedBar({ parts, scale, title }: StackedBarProps) {
  const t = useText();
  const total = PARTS.reduce((sum, part) => sum + parts[part], 0);
  const describe = (event: MouseEvent): void =>
    showTip(event.clientX, event.clientY, {
      title: `${title} · ${duration(total)}`,
      lines: PARTS.filter((part) => parts[part] > 0).map((part) => [
        t(`ui.part.${part}` as Key),
        `${duration(parts[part])} · ${percent(parts[part] / total)}`,
      ]),
    });
  return (
    <div
      class="stack"
      onMouseMove={describe}
      onMouseLeave={hideTip}
      role="img"
      aria-label={`${title}: ${duration(total)}`}
    >
      {PARTS.map((part) => (
        <i key={part} class={part} style={{ width: `${(parts[part] / scale) * 100}%` }} />
      ))}
    </div>
  );
}

export function PartLegend({ parts, total }: { parts: Record<Part, number>; total: number }) {
  const t = useText();
  const phases = knowsPhasesOnly(parts);
  return (
    <ul class="legend">
      {PARTS.filter((part) => parts[part] > 0).map((part) => (
        <li key={part}>
          <i class={part} />
          {t(phases && part === "compute" ? "ui.part.phase" : (`ui.part.${part}` as Key))}{" "}
          <b>{percent(parts[part] / total)}</b> <span>{duration(parts[part])}</span>
        </li>
      ))}
    </ul>
  );
}
