// Memory of one card as series: what is allocated, and what the allocator holds.
import { Columns } from "../../api/columns";
import type { Series } from "../../charts/Curve";
import type { Text } from "../../i18n/text";
import { byName } from "./curves";

const MEMORY_COLORS = ["compute", "exposed", "overlapped", "data"];

export function memorySeries(table: Columns, peak: string, t: Text): Series[] {
  const allocated = byName(table, "series", "x", "allocated", MEMORY_COLORS);
  const reserved = byName(table, "series", "x", "reserved", MEMORY_COLORS);
  return allocated.flatMap((one, i): Series[] => {
    const label = one.name ? `${one.name} ${t("ui.web.card.allocated")}` : peak;
    const held = reserved[i];
    const more =
      held && held.y.some(Number.isFinite)
        ? [{ ...held, name: `${one.name} ${t("ui.web.card.reserved")}`, dashed: true, steps: true }]
        : [];
    return [{ ...one, name: label, steps: true }, ...more].filter((some) => some.y.some(Number.isFinite));
  });
}
