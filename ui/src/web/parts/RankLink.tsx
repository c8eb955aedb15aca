// A rank's number, leading to its page.
import { runAddress } from "../router";
import { useWords } from "../words";
import type { Row } from "./cells";
import { Link } from "./Link";

export function RankLink({ run, rank, tab }: { run: string; rank: number; tab?: string }) {
  const w = useWords();
  return <Link to={runAddress(run, `cards/${rank}`, { tab })} title={w("card.open", { n: rank })}>{rank}</Link>;
}

/** For ServerTable: the named column as a link to the rank it holds. */
export const rankCell = (run: string, name = "rank") => (row: Row) =>
  typeof row[name] === "number" ? <RankLink run={run} rank={row[name]} /> : null;
