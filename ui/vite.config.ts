// Builds the report into one script and one style sheet that html.py inlines; nothing is loaded at run time.
import { defineConfig } from "vite";

export default defineConfig({
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
});
