// What went wrong, and what to do: written with the same care as the happy pages.
import { Empty } from "./Section";
import type { Problem } from "../api/client";
import { Link } from "./Link";
import { useText, type Text } from "../i18n/text";

export function ProblemMessage({ problem }: { problem: Problem }) {
  const t = useText();
  return (
    <div class="trouble" role="alert">
      <Empty title={titleOf(problem, t)} text={textOf(problem, t)} />
      {(problem.status === 404 || problem.status === 410) && (
        <p>
          <Link to="/">{t("ui.web.trouble.list")}</Link>
        </p>
      )}
    </div>
  );
}

function titleOf(problem: Problem, t: Text): string {
  if (problem.status === 0) return t("ui.web.trouble.unreachable");
  if (problem.status === 404) return t("ui.web.trouble.unknown");
  if (problem.status === 410) return t("ui.web.trouble.gone");
  if (problem.status === 503 || problem.status === 504) return t("ui.web.trouble.busy");
  return t("ui.web.trouble.failed");
}

function textOf(problem: Problem, t: Text): string {
  if (problem.status === 0) return t("ui.web.trouble.unreachable.text");
  // What the answer tells programs, the link below says to people.
  if (problem.status === 404) return problem.message;
  return [problem.message, problem.hint].filter(Boolean).join(" – ");
}

export function Busy({ text }: { text: string }) {
  return (
    <p class="busy" role="status">
      <i aria-hidden="true" />
      {text}
    </p>
  );
}
