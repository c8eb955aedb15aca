// All links as a table, and the transports.
import { linkKey } from "../../api/focus";
import { useRunData } from "../../api/runData";
import { HostPick, Pick, StepPick, TextField } from "../../components/Filters";
import { rankCell } from "../../components/RankLink";
import { Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { useText } from "../../i18n/text";
import { TransportTable } from "../../sections/TransportTable";

export function LinksTab({ run }: { run: string }) {
  const t = useText();
  const { place } = useRouter();
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
        <TextField name="src" label={t("ui.column.src")} numeric />
        <TextField name="dst" label={t("ui.column.dst")} numeric />
        <Pick
          name="transport"
          label={t("ui.column.transport")}
          all={t("ui.filter.all")}
          options={transports.map((name) => [name, name] as const)}
        />
        <HostPick />
        <StepPick all />
      </div>
      <Section id="links" title={t("ui.web.comm.links.title")} note={t("ui.web.comm.links.note")}>
        <ServerTable
          run={run}
          name="links"
          filters={filters}
          sort="ratio"
          caption={t("ui.web.comm.links.title")}
          hidden={["scope"]}
          marked={(row) => focus.links.has(linkKey(Number(row["src"]), Number(row["dst"])))}
          render={{ src: rankCell(run, "src"), dst: rankCell(run, "dst") }}
          empty={t("ui.web.comm.nolinks")}
        />
      </Section>
      {document.tables.transports.length > 0 && (
        <section>
          <TransportTable />
        </section>
      )}
    </>
  );
}
