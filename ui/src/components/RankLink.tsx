// A rank's number, leading to its page.
import { runAddress } from "./router";
import { useText } from "../i18n/text";
import type { Row } from "./tableCells";
import { Link } from "./Link";

export function RankLink({ run, rank, tab }: { run: string; rank: number; tab?: string }) {
  const t = useText();
  return (
    <Link to={runAddress(run, `cards/${rank}`, { tab })} title={t("ui.web.card.open", { n: rank })}>
      {rank}
    </Link>
  );
}

/** For ServerTable: the named column as a link to the rank it holds. */
export const rankCell =
  (run: string, name = "rank") =>
  (row: Row) =>
    typeof row[name] === "number" ? <RankLink run={run} rank={row[name]} /> : null;
