// How far a run is, in words and as a bar.
import { bytes } from "../i18n/numbers";
import type { Progress } from "../api/client";
import { useText } from "../i18n/text";

export function ProgressBar({ state }: { state: Progress }) {
  const t = useText();
  const known = state.phase === "reading" && state.total > 0;
  const share = known ? Math.min(1, state.done / state.total) : 0;
  const text = known
    ? t("ui.web.state.reading.of", { done: bytes(state.done), total: bytes(state.total) })
    : t(`ui.web.state.${state.phase}`);
  return (
    <span class="progress" role="status">
      <progress aria-label={text} {...(known ? { value: share } : {})} />
      <small>{text}</small>
    </span>
  );
}
