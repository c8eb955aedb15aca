// Communication: by rank, by link, as a matrix, by collective, by packet size.
import { Tabs, Title } from "../../components/Filters";
import { useSetting } from "../../components/router";
import { useText } from "../../i18n/text";
import { CollectivesTab } from "./CollectivesTab";
import { LinkMatrixTab } from "./LinkMatrixTab";
import { LinksTab } from "./LinksTab";
import { PacketsTab } from "./PacketsTab";
import { RanksTab } from "./RanksTab";

const TABS = ["ranks", "links", "matrix", "collectives", "packets"] as const;

export function CommunicationPage({ run }: { run: string }) {
  const t = useText();
  const [tab] = useSetting("tab", "ranks");
  return (
    <>
      <Title title={t("ui.nav.communication")} />
      <Tabs
        name="tab"
        label={t("ui.nav.communication")}
        options={TABS.map((one) => [one, t(`ui.web.comm.tab.${one}`)] as const)}
      />
      {tab === "ranks" && <RanksTab run={run} />}
      {tab === "links" && <LinksTab run={run} />}
      {tab === "matrix" && <LinkMatrixTab run={run} />}
      {tab === "collectives" && <CollectivesTab run={run} />}
      {tab === "packets" && <PacketsTab run={run} />}
    </>
  );
}
