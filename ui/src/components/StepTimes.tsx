// Step time before and after a change, as large numbers: "412 ms now → 351 ms if fixed".
import type { ComponentChildren } from "preact";
import { duration } from "../i18n/numbers";

interface StepTimesProps {
  before: number;
  beforeLabel: ComponentChildren;
  /** Null where there is nothing to change to. */
  after: number | null;
  afterLabel: ComponentChildren;
}

export function StepTimes({ before, beforeLabel, after, afterLabel }: StepTimesProps) {
  return (
    <dl class="speed">
      <div>
        <dd>{duration(before)}</dd>
        <dt>{beforeLabel}</dt>
      </div>
      {after !== null && (
        <>
          <span aria-hidden="true">→</span>
          <div>
            <dd data-fixed="">{duration(after)}</dd>
            <dt>{afterLabel}</dt>
          </div>
        </>
      )}
    </dl>
  );
}
