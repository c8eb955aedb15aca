// All links as a table, and the transports.
import { linkKey } from "../../api/focus";
import { useRunData } from "../../api/runData";
import { HostPick, PerChoice, Pick, RankField, StepPick, usePer } from "../../components/Filters";
import { rankCell } from "../../components/RankLink";
import { Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { count } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import { TransportTable } from "../../sections/TransportTable";

export function LinksTab({ run }: { run: string }) {
  const t = useText();
  const { place } = useRouter();
  const per = usePer();
  const { document, focus } = useRunData();
  const filters = Object.fromEntries(
    ["step", "src", "dst", "transport", "host"].map((name) => [name, place.query.get(name)]),
  );
  const transports = document.tables.transports
    .text("transport")
    .filter((name): name is string => name !== null && name !== "LOCAL");
  return (
    <>
      <div class="controls">
        <RankField name="src" label={t("ui.column.src")} />
        <RankField name="dst" label={t("ui.column.dst")} />
        <Pick
          name="transport"
          label={t("ui.column.transport")}
          all={t("ui.filter.all")}
          options={transports.map((name) => [name, name] as const)}
        />
        <HostPick />
        <StepPick all />
        <PerChoice />
      </div>
      <Section id="links" title={t(`ui.web.comm.links.title.${per}`)} note={t("ui.web.comm.links.note")}>
        <ServerTable
          run={run}
          name="links"
          filters={{ ...filters, per }}
          sort="ratio"
          caption={t(`ui.web.comm.links.title.${per}`)}
          hidden={["scope", "group"]}
          marked={(row) => focus.links.has(linkKey(Number(row["src"]), Number(row["dst"])))}
          render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }}
          empty={t("ui.web.comm.nolinks")}
        />
      </Section>
      {document.unplaced_links > 0 && (
        <Section
          id="unplaced"
          title={t(`ui.web.comm.unplaced.${per}`, { n: count(document.unplaced_links) })}
          note={t("ui.web.comm.unplaced.note")}
        >
          <ServerTable
            run={run}
            name="links"
            filters={{ step: filters["step"], transport: filters["transport"], scope: "group", per }}
            sort="-time"
            prefix="u"
            caption={t(`ui.web.comm.unplaced.${per}`, { n: count(document.unplaced_links) })}
            hidden={["scope", "src_host", "dst_host", "reference", "ratio", "peers"]}
          />
        </Section>
      )}
      {document.tables.transports.length > 0 && (
        <section>
          <TransportTable />
        </section>
      )}
    </>
  );
}
