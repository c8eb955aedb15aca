// Light or dark: as the system says, unless the reader says otherwise.
import { useEffect, useState } from "preact/hooks";

export type ThemeChoice = "auto" | "light" | "dark";

export interface Theme {
  choice: ThemeChoice;
  shown: "light" | "dark";
  next: () => void;
}

const NEXT: Record<ThemeChoice, ThemeChoice> = { auto: "light", light: "dark", dark: "auto" };

/** `remembered` names the place in the browser's storage that keeps the choice; a report keeps none. */
export function useTheme(remembered?: string): Theme {
  const [choice, setChoice] = useState<ThemeChoice>(() => recall(remembered));
  const [dark, setDark] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const follow = (): void => setDark(query.matches);
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  const shown = choice === "auto" ? (dark ? "dark" : "light") : choice;
  // Before the canvases draw: they read their colours from the style sheet.
  document.documentElement.dataset["theme"] = shown;
  const next = (): void => {
    setChoice(NEXT[choice]);
    if (remembered) localStorage.setItem(remembered, NEXT[choice]);
  };
  return { choice, shown, next };
}

function recall(remembered: string | undefined): ThemeChoice {
  const kept = remembered ? localStorage.getItem(remembered) : null;
  return kept === "light" || kept === "dark" ? kept : "auto";
}
