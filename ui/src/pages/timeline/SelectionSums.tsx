// The events inside a selected part of the timeline, summed by name.
import type { Sums } from "../../api/types";
import { address, useJson } from "../../api/client";
import type { Selection } from "../../charts/Timeline";
import { laneList } from "../../charts/timelineLanes";
import { ProblemMessage } from "../../components/ProblemMessage";
import { count, duration } from "../../i18n/numbers";
import { useText } from "../../i18n/text";

export function SelectionSums({ run, selection }: { run: string; selection: Selection }) {
  const t = useText();
  // The lane of the steps would top every sum and explain nothing.
  const work = selection.lanes.filter((lane) => lane.recorded || lane.track !== "steps");
  const chosen = work.length ? work : selection.lanes;
  const lanes = laneList(chosen.map((lane) => lane.index).sort((a, b) => a - b));
  const asked = useJson<Sums>(
    address(`runs/${encodeURIComponent(run)}/timeline/sums`, {
      begin: selection.begin,
      end: Math.max(selection.begin + 1, selection.end),
      lanes,
    }),
  );
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  if (!asked.value) return null;
  const { names, events, time, more } = asked.value;
  return (
    <section id="sums">
      <h2>
        {t("ui.web.timeline.sums", {
          span: duration((selection.end - selection.begin) / 1e6),
          lanes: count(chosen.length),
        })}
      </h2>
      <p class="note">{t("ui.web.timeline.sums.note", { events: count(events), time: duration(time / 1e6) })}</p>
      <div class="table">
        <table>
          <thead>
            <tr>
              <th class="text" scope="col">
                {t("ui.column.name")}
              </th>
              <th scope="col">{t("ui.column.count")}</th>
              <th scope="col">{t("ui.column.time")}</th>
              <th class="text wide" scope="col">
                <span class="unseen">{t("ui.column.share")}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {names.slice(0, 30).map((one) => (
              <tr key={one.name}>
                <td class="text">{one.name}</td>
                <td>{count(one.count)}</td>
                <td>{duration(one.time / 1e6)}</td>
                <td class="text wide">
                  <span class="inline">
                    <i class="compute" style={{ width: `${(100 * one.time) / (names[0].time || 1)}%` }} />
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more + Math.max(0, names.length - 30) > 0 && (
        <p class="note">{t("ui.web.timeline.sums.more", { n: count(more + names.length - 30) })}</p>
      )}
    </section>
  );
}
