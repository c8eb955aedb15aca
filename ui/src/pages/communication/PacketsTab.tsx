// Packet sizes by transport.
import { useRunData } from "../../api/runData";
import { Pick, RankField, StepPick } from "../../components/Filters";
import { Section } from "../../components/Section";
import { ServerTable } from "../../components/ServerTable";
import { useRouter } from "../../components/router";
import { binaryBytes } from "../../i18n/numbers";
import { useText } from "../../i18n/text";
import { PacketSizes } from "../../sections/PacketSizes";

export function PacketsTab({ run }: { run: string }) {
  const t = useText();
  const { place } = useRouter();
  const { document } = useRunData();
  const filters = Object.fromEntries(["step", "rank", "transport"].map((name) => [name, place.query.get(name)]));
  const transports = [
    ...new Set(document.tables.packets.text("transport").filter((name): name is string => name !== null)),
  ];
  return (
    <>
      <PacketSizes />
      {document.tables.packets.length > 0 && (
        <Section id="sizes" title={t("ui.web.comm.sizes")}>
          <div class="controls">
            <StepPick all />
            <RankField label={t("ui.column.rank")} />
            <Pick
              name="transport"
              label={t("ui.column.transport")}
              all={t("ui.filter.all")}
              options={transports.map((name) => [name, name] as const)}
            />
          </div>
          <ServerTable
            run={run}
            name="packets"
            filters={filters}
            sort="-time"
            caption={t("ui.web.comm.sizes")}
            render={{ packet_bytes: (row) => binaryBytes(Number(row["packet_bytes"])) }}
          />
        </Section>
      )}
    </>
  );
}
