// The events whose names contain a text, the longest first.
import { useEffect, useState } from "preact/hooks";
import type { Hit, Hits } from "../../api/types";
import { address, useJson } from "../../api/client";
import { ProblemMessage } from "../../components/ProblemMessage";
import { count, duration } from "../../i18n/numbers";
import { useText } from "../../i18n/text";

/** The text once typing has paused. */
function useSettled(text: string, milliseconds: number): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), milliseconds);
    return () => clearTimeout(timer);
  }, [text, milliseconds]);
  return settled;
}

export function SearchHits({ run, search, onShow }: { run: string; search: string; onShow: (hit: Hit) => void }) {
  const t = useText();
  const settled = useSettled(search, 200);
  const asked = useJson<Hits>(address(`runs/${encodeURIComponent(run)}/timeline/search`, { q: settled, limit: 50 }));
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  const answer = asked.value;
  if (!answer) return null;
  return (
    <section id="hits">
      <h2>{t("ui.web.timeline.hits", { n: count(answer.total), text: search })}</h2>
      <p class="note">{t("ui.web.timeline.hits.note", { time: duration(answer.time / 1e6) })}</p>
      <div class="table">
        <table>
          <thead>
            <tr>
              <th class="text" scope="col">
                {t("ui.column.name")}
              </th>
              <th scope="col">{t("ui.column.rank")}</th>
              <th scope="col">{t("ui.web.timeline.at")}</th>
              <th scope="col">{t("ui.web.timeline.lasts")}</th>
            </tr>
          </thead>
          <tbody>
            {answer.hits.slice(0, 20).map((hit, i) => (
              <tr key={i}>
                <td class="text">
                  <button type="button" class="plain linked" onClick={() => onShow(hit)}>
                    {hit.name}
                  </button>
                </td>
                <td>{t("ui.name.rank", { n: hit.rank })}</td>
                <td>{duration(hit.start / 1e6)}</td>
                <td>{duration(hit.duration / 1e6)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
