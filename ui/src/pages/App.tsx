// The frame of all pages: language, colours, addresses.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ThemeContext } from "../charts/useCanvas";
import { Switches } from "../components/Switches";
import type { Language } from "../api/document";
import { LanguageContext, localize, useText } from "../i18n/text";
import { useTheme } from "../style/theme";
import { ComparePage } from "./ComparePage";
import { RunPages } from "./RunPages";
import { RunListPage } from "./RunListPage";
import { Link } from "../components/Link";
import { RouterContext, useRouter, useRouting } from "../components/router";

const LANGUAGE = "paceline.language";

export function App() {
  const router = useRouting();
  const theme = useTheme("paceline.theme");
  const [language, setLanguage] = useState<Language>(() => firstLanguage(router.place.query.get("lang")));
  const localization = useMemo(() => localize(language), [language]);
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }, [language]);
  const change = (): void => {
    const next = language === "en" ? "zh" : "en";
    localStorage.setItem(LANGUAGE, next);
    router.set({ lang: null });
    setLanguage(next);
  };
  return (
    <RouterContext.Provider value={router}>
      <LanguageContext.Provider value={localization}>
        <ThemeContext.Provider value={theme.shown}>
          <Page switches={<Switches theme={theme} onLanguage={change} />} />
        </ThemeContext.Provider>
      </LanguageContext.Provider>
    </RouterContext.Provider>
  );
}

function Page({ switches }: { switches: ComponentChildren }) {
  const { place } = useRouter();
  const [first, run, page] = place.path;
  if (first === "runs" && run)
    return <RunPages key={run} run={run} page={page ?? "overview"} rest={place.path.slice(3)} switches={switches} />;
  if (first === "compare")
    return (
      <Framed switches={switches}>
        <ComparePage />
      </Framed>
    );
  return (
    <Framed switches={switches}>
      <RunListPage />
    </Framed>
  );
}

function Framed({ switches, children }: { switches: ComponentChildren; children: ComponentChildren }) {
  const t = useText();
  const { place } = useRouter();
  const comparing = place.path[0] === "compare";
  return (
    <>
      <a class="skip" href="#main">
        {t("ui.web.skip")}
      </a>
      <header class="bar">
        <Link class="mark" to="/">
          Paceline
        </Link>
        <nav aria-label={t("ui.nav.pages")}>
          <Link to="/" current={!comparing}>
            {t("ui.nav.runs")}
          </Link>
          <Link to="/compare" current={comparing}>
            {t("ui.nav.compare")}
          </Link>
        </nav>
        {switches}
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

function firstLanguage(asked: string | null): Language {
  const wanted = asked ?? localStorage.getItem(LANGUAGE) ?? navigator.language;
  return wanted.startsWith("zh") ? "zh" : "en";
}
