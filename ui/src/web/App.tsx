// The frame of all pages: language, colours, addresses.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ThemeContext } from "../charts/useCanvas";
import { Switches } from "../components/Switches";
import type { Language } from "../data/document";
import { LanguageContext, textIn } from "../i18n/text";
import { useTheme } from "../report/theme";
import { Compare } from "./pages/Compare";
import { RunPages } from "./pages/RunPages";
import { Runs } from "./pages/Runs";
import { Link } from "./parts/Link";
import { RouterContext, useRouter, useRouting } from "./router";
import { SpeechContext, useWords, wordsIn } from "./words";

const LANGUAGE = "paceline.language";

export function App() {
  const router = useRouting();
  const theme = useTheme("paceline.theme");
  const [language, setLanguage] = useState<Language>(() => firstLanguage(router.place.query.get("lang")));
  const speech = useMemo(() => ({ language, w: wordsIn(language) }), [language]);
  const text = useMemo(() => textIn(language), [language]);
  useEffect(() => { document.documentElement.lang = language === "zh" ? "zh-CN" : "en"; }, [language]);
  const change = (): void => {
    const next = language === "en" ? "zh" : "en";
    localStorage.setItem(LANGUAGE, next);
    router.set({ lang: null });
    setLanguage(next);
  };
  return (
    <RouterContext.Provider value={router}>
      <SpeechContext.Provider value={speech}>
        <LanguageContext.Provider value={text}>
          <ThemeContext.Provider value={theme.shown}>
            <Page switches={<Switches theme={theme} onLanguage={change} />} />
          </ThemeContext.Provider>
        </LanguageContext.Provider>
      </SpeechContext.Provider>
    </RouterContext.Provider>
  );
}

function Page({ switches }: { switches: ComponentChildren }) {
  const { place } = useRouter();
  const [first, run, page] = place.path;
  if (first === "runs" && run) return <RunPages key={run} run={run} page={page ?? "overview"} rest={place.path.slice(3)} switches={switches} />;
  if (first === "compare") return <Framed switches={switches}><Compare /></Framed>;
  return <Framed switches={switches}><Runs /></Framed>;
}

function Framed({ switches, children }: { switches: ComponentChildren; children: ComponentChildren }) {
  const w = useWords();
  const { place } = useRouter();
  const comparing = place.path[0] === "compare";
  return (
    <>
      <a class="skip" href="#main">{w("skip")}</a>
      <header class="bar">
        <Link class="mark" to="/">Paceline</Link>
        <nav aria-label={w("nav.pages")}>
          <Link to="/" current={!comparing}>{w("nav.runs")}</Link>
          <Link to="/compare" current={comparing}>{w("nav.compare")}</Link>
        </nav>
        {switches}
      </header>
      <main id="main" tabIndex={-1}>{children}</main>
    </>
  );
}

function firstLanguage(asked: string | null): Language {
  const wanted = asked ?? localStorage.getItem(LANGUAGE) ?? navigator.language;
  return wanted.startsWith("zh") ? "zh" : "en";
}
