// The bar that stays: sections, language, colours.
import { Switches } from "../components/Switches";
import { useText, type Key } from "../i18n/text";
import type { Theme } from "../style/theme";

const SECTIONS: [string, Key][] = [
  ["findings", "ui.nav.findings"],
  ["time", "ui.nav.time"],
  ["steps", "ui.nav.each_step"],
  ["collectives", "ui.nav.communication"],
  ["links", "ui.nav.links"],
  ["memory", "ui.nav.memory"],
  ["data", "ui.nav.data"],
];

export function TopBar({ theme, onLanguage }: { theme: Theme; onLanguage: () => void }) {
  const t = useText();
  return (
    <header class="bar">
      <span class="mark">Paceline</span>
      <nav aria-label={t("ui.report.sections")}>
        {SECTIONS.map(([id, key]) => (
          <a key={id} href={`#${id}`}>
            {t(key)}
          </a>
        ))}
      </nav>
      <Switches theme={theme} onLanguage={onLanguage} />
    </header>
  );
}
