// One communication operator over its ranks: moving data, waiting before the first byte, waiting later; then its links.
import { useCallback, useMemo, useState } from "preact/hooks";
import { RankBars, type Bar } from "../charts/RankBars";
import { Empty, Section } from "../components/Section";
import type { Columns } from "../api/columns";
import { count, duration } from "../i18n/numbers";
import { useText, type Key, type Text } from "../i18n/text";
import { kindName } from "./CollectiveTable";
import { OperatorDetail } from "./OperatorDetail";
import { useRunData } from "../api/runData";

const WHATS = ["named", "class", "single"] as const;
const PIECES = ["transit", "sync", "wait", "idle"] as const;
const COLORS = ["exposed", "waiting-deep", "waiting", "free"];
/** What recordings without a split get: one part, in all. */
const WHOLE = ["elapse"] as const;
const WHOLE_COLOR = ["waiting-deep"];

export function CommunicationOperators() {
  const t = useText();
  const { document, cluster, focus } = useRunData();
  const { operators, operator_times: times } = document.tables;
  const ids = operators.num("id");
  const [chosen, setChosen] = useState(firstOf(operators));
  const bars = useMemo(
    () => barsOf(times, chosen).sort((a, b) => (cluster.place.get(a.rank) ?? 0) - (cluster.place.get(b.rank) ?? 0)),
    [times, chosen, cluster],
  );
  const row = Array.from(ids).indexOf(chosen);
  const what = operators.text("what")[row] ?? "class";
  const isSplit = bars.some((bar) => bar.up.length > 1);
  const [pieces, colors] = isSplit ? [PIECES, COLORS] : [WHOLE, WHOLE_COLOR];
  const tip = useCallback(
    (bar: OperatorBar) => ({
      title: `${t("ui.name.rank_title", { n: bar.rank })} · ${cluster.byRank.get(bar.rank)?.host ?? ""}`,
      lines: [
        [t("ui.operators.elapse"), duration(bar.elapse)],
        ...(bar.up.length > 1 ? PIECES : []).map((piece, i): [string, string] => [
          t(`ui.operators.${piece}` as Key),
          duration(bar.up[i]),
        ]),
      ] as [string, string][],
    }),
    [cluster, t],
  );
  if (operators.length === 0) {
    return (
      <Section id="operators" title={t("ui.operators.title")}>
        <Empty title={t("ui.operators.empty")} text={t("ui.operators.empty.text")} />
      </Section>
    );
  }
  return (
    <Section id="operators" title={t("ui.operators.title")}>
      <div class="controls">
        <label>
          {t("ui.column.op")}{" "}
          <select value={String(chosen)} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {WHATS.filter((kind) => operators.text("what").includes(kind)).map((kind) => (
              <optgroup key={kind} label={t(`ui.operators.${kind}` as Key)}>
                {operators.text("what").map(
                  (is, i) =>
                    is === kind && (
                      <option key={i} value={String(ids[i])}>
                        {nameOf(operators, i, t)}
                      </option>
                    ),
                )}
              </optgroup>
            ))}
          </select>
        </label>
      </div>
      <RankBars
        bars={bars}
        colors={colors}
        marked={focus.ranks}
        tip={tip}
        label={t("ui.arrivals.label", { n: bars.length })}
      />
      <ul class="legend">
        {pieces.map((piece, i) => (
          <li key={piece}>
            <i class={colors[i]} />
            {t(`ui.operators.${piece}` as Key)}
          </li>
        ))}
      </ul>
      <p class="note">
        {t(`ui.operators.${what}.note` as Key)}
        {!isSplit && ` ${t("ui.operators.unsplit")}`}
      </p>
      {what !== "class" && <OperatorDetail key={chosen} id={chosen} last={operators.num("last")[row]} />}
    </Section>
  );
}

/** A named operator where there is one: the first is the one that msadvisor's result names first. */
function firstOf(operators: Columns): number {
  const what = operators.text("what");
  const ids = operators.num("id");
  return operators.length ? ids[Math.max(0, what.indexOf("named"))] : 0;
}

interface OperatorBar extends Bar {
  elapse: number;
}

function barsOf(times: Columns, id: number): OperatorBar[] {
  const [ids, rank, elapse] = ["id", "rank", "elapse"].map((name) => times.num(name));
  const pieces = ["transit", "sync", "later_wait", "idle"].map((name) => times.num(name));
  const isWhole = (i: number): boolean => Number.isNaN(pieces[3][i]);
  return Array.from(ids, (_, i) => i)
    .filter((i) => ids[i] === id)
    .map((i) => ({
      rank: rank[i],
      elapse: elapse[i],
      up: isWhole(i) ? [elapse[i] || 0] : pieces.map((piece) => piece[i] || 0),
    }));
}

function nameOf(operators: Columns, i: number, t: Text): string {
  const n = operators.num("members")[i];
  const members = n === 1 ? t("ui.header.rank") : t("ui.header.ranks", { n: count(n) });
  const kind = kindName(operators.text("kind")[i] ?? "", t);
  const name = operators.text("name")[i];
  if (!name) return `${operators.text("op")[i]} · ${kind} · ${members}`;
  if (operators.text("what")[i] === "named") return `${name} · ${kind} · ${members}`;
  return `${name} · ${t("ui.steps.tip", { n: operators.num("step")[i] })} · ${kind} · ${members}`;
}
