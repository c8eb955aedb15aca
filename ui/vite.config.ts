// Two builds of one code base: the report as one script and one style sheet that html.py inlines, and (--mode web) the
// server's pages. Nothing is loaded from elsewhere at run time.
import { readFileSync } from "node:fs";
import { defineConfig, type Plugin, type UserConfig } from "vite";

/** Every report carries its texts: it is built without those of the server's pages. */
const reportTexts: Plugin = {
  name: "report-texts",
  enforce: "pre",
  load(id) {
    if (!id.endsWith("/core/texts/ui.json")) return null;
    const texts = JSON.parse(readFileSync(id, "utf8")) as Record<string, unknown>;
    return JSON.stringify(Object.fromEntries(Object.entries(texts).filter(([key]) => !key.startsWith("ui.web."))));
  },
};

const report: UserConfig = {
  plugins: [reportTexts],
  publicDir: false,
  build: {
    outDir: "../src/paceline/output/static",
    emptyOutDir: true,
    target: "es2021",
    cssTarget: "chrome100",
    lib: {
      entry: "src/report/main.tsx",
      name: "paceline",
      formats: ["iife"],
      fileName: () => "report.js",
      cssFileName: "report",
    },
  },
  define: { "process.env.NODE_ENV": '"production"' },
};

const web: UserConfig = {
  base: "/",
  build: {
    outDir: "../src/paceline/web/static",
    emptyOutDir: true,
    target: "es2021",
    cssTarget: "chrome100",
    modulePreload: { polyfill: false },
    // No data: addresses in style sheets; the content security policy is strict.
    assetsInlineLimit: 0,
  },
};

export default defineConfig(({ mode }) => (mode === "web" ? web : report));
