// The legend of a colour scale: its ends, what it shows, and where the marked values lie on it.
import type { ComponentChildren } from "preact";
import { RAMP_START } from "./color";
import { clamp } from "./scale";

export interface RampMark {
  /** 0..1 on the scale */
  at: number;
  label: string;
}

interface RampProps {
  /** A name of style/colors.css. */
  color: string;
  ends: [low: string, high: string];
  title: string;
  marks?: RampMark[];
  /** Where the pale end lies: charts/color.ts. */
  start?: number;
  children?: ComponentChildren;
}

export function Ramp({ color, ends, title, marks = [], start = RAMP_START, children }: RampProps) {
  return (
    <div class="ramp">
      <span>{ends[0]}</span>
      <i style={{ "--ramp-high": `var(--${color})`, "--ramp-start": `${100 * (1 - start)}%` }}>
        {marks.map(({ at, label }) => (
          <b key={label} style={{ left: `${100 * clamp(at, 0, 1)}%` }} />
        ))}
      </i>
      <span>{ends[1]}</span>
      <em>{title}</em>
      {marks.map(({ label }) => (
        <span key={label} class="mark">
          ▲ {label}
        </span>
      ))}
      {children}
    </div>
  );
}
