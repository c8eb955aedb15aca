// Nothing was recorded of communication: which switch of the profiler that wrote this recording would have done so.
import { Empty } from "../../components/Section";
import { useText, type Key } from "../../i18n/text";

/** The first format that fits decides. */
const SWITCHES: readonly (readonly [format: string, key: Key])[] = [
  ["mindinsight", "ui.web.comm.off.mindinsight"],
  ["ascend", "ui.web.comm.off.ascend"],
  ["msprof", "ui.web.comm.off.ascend"],
  ["kineto", "ui.web.comm.off.kineto"],
];

export function NoCommunication({ formats }: { formats: readonly string[] }) {
  const t = useText();
  const known = SWITCHES.find(([name]) => formats.some((format) => format.startsWith(name)));
  return <Empty title={t("ui.web.comm.off")} text={t(known ? known[1] : "ui.web.comm.off.other")} />;
}
