// The communication operators and links of one card.
import { linkKey } from "../../api/focus";
import { useRunData } from "../../api/runData";
import { PerChoice, TextField, usePer } from "../../components/Filters";
import { rankCell } from "../../components/RankLink";
import { Empty, Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { useText } from "../../i18n/text";
import { kindName } from "../../sections/CollectiveTable";
import type { CardTabProps } from "./cardInfo";

export function CommunicationTab({ run, card }: CardTabProps) {
  const t = useText();
  const { place } = useRouter();
  const per = usePer();
  const { focus } = useRunData();
  if (!card.has["collectives"])
    return (
      <Section id="communication" title={t("ui.web.card.tab.communication")}>
        <Empty title={t("ui.collectives.empty")} text={t("ui.collectives.empty.text")} />
      </Section>
    );
  return (
    <>
      <Section id="communication" title={t("ui.web.card.communication.title", { n: card.rank })}>
        <div class="controls">
          <TextField name="q" label={t("ui.column.name")} />
        </div>
        <ServerTable
          run={run}
          name="card-collectives"
          filters={{ rank: card.rank, q: place.query.get("q") }}
          sort="-time"
          caption={t("ui.web.card.tab.communication")}
          render={{ kind: (row) => kindName(String(row["kind"] ?? ""), t) }}
        />
      </Section>
      <Section id="links" title={t(`ui.web.comm.linksof.${per}`, { n: card.rank })}>
        <div class="controls">
          <PerChoice />
        </div>
        <ServerTable
          run={run}
          name="links"
          filters={{ rank: card.rank, per }}
          sort="-time"
          prefix="l"
          size={15}
          caption={t("ui.web.comm.tab.links")}
          hidden={["scope", "group"]}
          empty={t("ui.web.comm.nolinks")}
          render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }}
          marked={(row) => focus.links.has(linkKey(Number(row["src"]), Number(row["dst"])))}
        />
      </Section>
    </>
  );
}
