// The bar that stays: sections, language, colours.
import { Switches } from "../components/Switches";
import { useText, type Key } from "../i18n/text";
import type { Theme } from "./theme";

const SECTIONS: [string, Key][] = [
  ["findings", "nav.findings"], ["time", "nav.time"], ["steps", "nav.steps"], ["collectives", "nav.communication"],
  ["links", "nav.links"], ["memory", "nav.memory"], ["data", "nav.data"],
];

export function TopBar({ theme, onLanguage }: { theme: Theme; onLanguage: () => void }) {
  const t = useText();
  return (
    <header class="bar">
      <span class="mark">Paceline</span>
      <nav aria-label={t("nav.label")}>
        {SECTIONS.map(([id, key]) => <a key={id} href={`#${id}`}>{t(key)}</a>)}
      </nav>
      <Switches theme={theme} onLanguage={onLanguage} />
    </header>
  );
}
