// Two builds of one code base: the report as one script and one style sheet that html.py inlines, and (--mode web) the
// server's pages. Nothing is loaded from elsewhere at run time.
import { defineConfig, type UserConfig } from "vite";

const report: UserConfig = {
  publicDir: false,
  build: {
    outDir: "../src/paceline/report/static",
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
