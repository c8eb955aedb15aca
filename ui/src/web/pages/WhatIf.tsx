// Tick fixes, see the new step time and who holds the run up then.
import { useMemo, useState } from "preact/hooks";
import { Empty, Section } from "../../components/Section";
import { duration, percent } from "../../format/numbers";
import { useText } from "../../i18n/text";
import { useScene } from "../../views/context";
import { fullName } from "../../views/names";
import { address, useJson } from "../api";
import { Title } from "../parts/Filters";
import { RankLink } from "../parts/RankLink";
import { Busy, Trouble } from "../parts/Trouble";
import { useRouter } from "../router";
import { useLanguage, useWords, type Words } from "../words";

interface Fix {
  fix: string;
  finding: number | null;
  title: string | null;
}

interface Mended {
  fixes: string[];
  step_ms_now: number;
  step_ms_fixed: number;
  percent: number;
  path: Record<"work" | "transfer" | "wait", number>;
  holders: { rank: number; work: number; transfer: number }[];
}

export function WhatIf({ run }: { run: string }) {
  const w = useWords();
  const t = useText();
  const language = useLanguage();
  const { place, set } = useRouter();
  const { cluster } = useScene();
  const path = `runs/${encodeURIComponent(run)}`;
  const offered = useJson<{ fixes: Fix[] }>(address(`${path}/fixes`, { lang: language }));
  const chosen = useMemo(() => (place.query.get("fix") ?? "").split(" ").filter(Boolean), [place]);
  const asked = useJson<Mended>(address(`${path}/what-if`, { fix: chosen }));
  const choose = (fixes: string[]): void => set({ fix: [...new Set(fixes)].join(" ") });
  const own = chosen.filter((fix) => !offered.value?.fixes.some((one) => one.fix === fix));
  const all: Fix[] = [...(offered.value?.fixes ?? []), ...own.map((fix) => ({ fix, finding: null, title: null }))];
  const mended = asked.value;
  return (
    <>
      <Title title={w("whatif.title")} note={w("whatif.note")} />
      <div class="answer whatif">
        <Section id="fixes" title={w("whatif.fixes")}>
          <ul class="fixes">
            {all.map((one) => (
              <li key={one.fix}>
                <label>
                  <input type="checkbox" name={one.fix} checked={chosen.includes(one.fix)}
                    onChange={(event) => choose(event.currentTarget.checked ? [...chosen, one.fix] : chosen.filter((fix) => fix !== one.fix))} />
                  <span><strong>{described(one.fix, w)}</strong>{one.title && <small>{t("finding.number", { n: one.finding ?? 0 })}: {one.title}</small>}</span>
                </label>
              </li>
            ))}
          </ul>
          <OwnFix onAdd={(fix) => choose([...chosen, fix])} />
        </Section>
        <Section id="result" title={w("whatif.result")}>
          {asked.problem && <Trouble problem={asked.problem} />}
          {asked.busy && <Busy text={w("whatif.busy")} />}
          {mended && (
            <>
              <dl class="speed">
                <div><dd>{duration(mended.step_ms_now)}</dd><dt>{w("whatif.now")}</dt></div>
                <span aria-hidden="true">→</span>
                <div><dd data-fixed="">{duration(mended.step_ms_fixed)}</dd><dt>{chosen.length ? <b>{t("headline.faster", { percent: percent(mended.percent / 100, 1) })}</b> : w("whatif.tick")}</dt></div>
              </dl>
              <div class="gain"><div class="track" aria-hidden="true"><i style={{ width: `${(100 * mended.step_ms_fixed) / mended.step_ms_now}%` }} /></div></div>
              <h3>{w("whatif.holders")}</h3>
              <p class="note">{w("whatif.holders.note", { work: duration(mended.path.work), transfer: duration(mended.path.transfer) })}</p>
              {mended.holders.length === 0 ? <Empty title={w("whatif.nobody")} text={w("whatif.nobody.text")} /> : (
                <div class="table"><table>
                  <thead><tr><th class="text" scope="col">{w("col.rank")}</th><th scope="col">{w("whatif.work")} <small>ms</small></th><th scope="col">{w("whatif.transfer")} <small>ms</small></th><th class="text wide" scope="col"><span class="unseen">{w("whatif.holders")}</span></th></tr></thead>
                  <tbody>{mended.holders.map((holder, i) => {
                    const who = cluster.byRank.get(holder.rank);
                    return (
                      <tr key={holder.rank} class={i === 0 ? "first" : undefined}>
                        <td class="text"><RankLink run={run} rank={holder.rank} /> <small>{who ? fullName(who, t).split(" · ").slice(1).join(" · ") : ""}</small></td>
                        <td>{holder.work.toFixed(2)}</td><td>{holder.transfer.toFixed(2)}</td>
                        <td class="text wide"><span class="inline">
                          <i class="compute" style={{ width: `${(100 * holder.work) / mended.step_ms_now}%` }} />
                          <i class="exposed" style={{ width: `${(100 * holder.transfer) / mended.step_ms_now}%` }} />
                        </span></td>
                      </tr>
                    );
                  })}</tbody>
                </table></div>
              )}
            </>
          )}
        </Section>
      </div>
    </>
  );
}

/** Any rank, host or link, for questions the findings did not ask. */
function OwnFix({ onAdd }: { onAdd: (fix: string) => void }) {
  const w = useWords();
  const [kind, setKind] = useState("rank");
  const [value, setValue] = useState("");
  const good = kind === "rank" ? /^\d+$/.test(value) : kind === "link" ? /^\d+-\d+$/.test(value) : /^[^\s]+$/.test(value);
  return (
    <form class="controls" onSubmit={(event) => { event.preventDefault(); if (good) { onAdd(`${kind}:${value}`); setValue(""); } }}>
      <label class="pick"><span>{w("whatif.also")}</span>
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {(["rank", "host", "link"] as const).map((one) => <option key={one} value={one}>{w(`whatif.kind.${one}`)}</option>)}
        </select>
      </label>
      <input type="text" size={10} value={value} aria-label={w("whatif.value")} placeholder={kind === "link" ? "3-5" : kind === "rank" ? "5" : "node1"} onInput={(event) => setValue(event.currentTarget.value.trim())} />
      <button type="submit" disabled={!good}>{w("whatif.add")}</button>
    </form>
  );
}

function described(fix: string, w: Words): string {
  const [kind, ...rest] = fix.split(":");
  const what = rest.join(":");
  if (kind === "rank") return w("fix.rank", { what });
  if (kind === "host") return w("fix.host", { what });
  if (kind === "link") return w("fix.link", { what: what.replace("-", " → ") });
  return fix === "stages" ? w("fix.stages") : fix === "overlap" ? w("fix.overlap") : fix === "input" ? w("fix.input") : fix;
}
