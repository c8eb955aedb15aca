// What went wrong, and what to do: written with the same care as the happy pages.
import { Empty } from "../../components/Section";
import type { Problem } from "../api";
import { Link } from "./Link";
import { useWords, type Words } from "../words";

export function Trouble({ problem }: { problem: Problem }) {
  const w = useWords();
  return (
    <div class="trouble" role="alert">
      <Empty title={titleOf(problem, w)} text={textOf(problem, w)} />
      {(problem.status === 404 || problem.status === 410) && <p><Link to="/">{w("trouble.list")}</Link></p>}
    </div>
  );
}

function titleOf(problem: Problem, w: Words): string {
  if (problem.status === 0) return w("trouble.unreachable");
  if (problem.status === 404) return w("trouble.unknown");
  if (problem.status === 410) return w("trouble.gone");
  if (problem.status === 503 || problem.status === 504) return w("trouble.busy");
  return w("trouble.failed");
}

function textOf(problem: Problem, w: Words): string {
  if (problem.status === 0) return w("trouble.unreachable.text");
  // What is said to programs there, the link below says to people.
  if (problem.status === 404) return problem.message;
  return [problem.message, problem.hint].filter(Boolean).join(" – ");
}

export function Busy({ text }: { text: string }) {
  return <p class="busy" role="status"><i aria-hidden="true" />{text}</p>;
}
