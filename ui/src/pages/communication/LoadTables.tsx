// Tables that one section needs, fetched when it is shown: the first view of ten thousand ranks stays small.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { address, useJson } from "../../api/client";
import type { ReportTables } from "../../api/types";
import { withTables } from "../../api/document";
import { RunDataContext, useRunData } from "../../api/runData";
import { Busy, ProblemMessage } from "../../components/ProblemMessage";
import { useText } from "../../i18n/text";

interface LoadTablesProps {
  run: string;
  name: "arrivals" | "operators";
  children: ComponentChildren;
}

export function LoadTables({ run, name, children }: LoadTablesProps) {
  const t = useText();
  const runData = useRunData();
  const asked = useJson<ReportTables>(address(`runs/${encodeURIComponent(run)}/overview/${name}`));
  const document = useMemo(
    () => (asked.value ? withTables(runData.document, asked.value.tables) : null),
    [asked.value, runData.document],
  );
  if (asked.problem) return <ProblemMessage problem={asked.problem} />;
  if (!document) return <Busy text={t("ui.web.table.asking")} />;
  return <RunDataContext.Provider value={{ ...runData, document }}>{children}</RunDataContext.Provider>;
}
