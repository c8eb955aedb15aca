// The steps of one card, and its communication groups.
import { hiddenParts } from "../../api/cluster";
import { useRunData } from "../../api/runData";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { count, ranges } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import { kindName } from "../../sections/CollectiveTable";
import type { CardTabProps } from "./cardInfo";

export function StepsTab({ run, card }: CardTabProps) {
  const t = useText();
  const share = useRunData().shares.find((one) => one.rank.rank === card.rank);
  return (
    <>
      <Section
        id="steps"
        title={t("ui.web.card.steps.title", { n: card.rank })}
        note={card.has["steps"] ? t("ui.web.steps.table.parts") : undefined}
      >
        {card.has["steps"] ? (
          <ServerTable
            run={run}
            name="card-steps"
            filters={{ rank: card.rank }}
            sort="step"
            hidden={hiddenParts(share?.parts)}
            caption={t("ui.web.card.tab.steps")}
          />
        ) : (
          <Empty title={t("ui.steps.empty")} text={t("ui.time.empty.text")} />
        )}
      </Section>
      {card.groups.some((group) => group.members > 1) && (
        <Section id="groups" title={t("ui.web.card.groups")}>
          <div class="table few">
            <table>
              <thead>
                <tr>
                  <th class="text" scope="col">
                    {t("ui.column.group")}
                  </th>
                  <th scope="col">{t("ui.column.members")}</th>
                  <th class="text" scope="col">
                    {t("ui.column.ranks")}
                  </th>
                </tr>
              </thead>
              <tbody>
                {card.groups
                  .filter((group) => group.members > 1)
                  .map((group) => (
                    <tr key={group.group}>
                      <td class="text">{kindName(group.kind ?? "", t)}</td>
                      <td>{count(group.members)}</td>
                      <td class="text">
                        {ranges(group.ranks, 8)}
                        {group.ranks.length < group.members && " …"}
                      </td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </div>
        </Section>
      )}
    </>
  );
}
