// How far a run is, in words and as a bar.
import { bytes } from "../../format/numbers";
import type { Progress } from "../api";
import { useWords } from "../words";

export function ProgressBar({ state }: { state: Progress }) {
  const w = useWords();
  const known = state.phase === "reading" && state.total > 0;
  const share = known ? Math.min(1, state.done / state.total) : 0;
  const text = known ? w("state.reading.of", { done: bytes(state.done), total: bytes(state.total) }) : w(`state.${state.phase}`);
  return (
    <span class="progress" role="status">
      <progress aria-label={text} {...(known ? { value: share } : {})} />
      <small>{text}</small>
    </span>
  );
}
