// Entry of the one-file pages: draws the report from the data that html_report.py put beside this script, or the charts
// of a page whose words and tables are written already (output/page/html.py).
import { render } from "preact";
import { readDocument, type PackedReport } from "../api/document";
import { ValueChart, type ValueChartData } from "../charts/ValueChart";
import "../style/report.css";
import { ReportPage } from "./ReportPage";

const data = document.getElementById("paceline-data")?.textContent;
const app = document.getElementById("app");
if (data && app) render(<ReportPage document={readDocument(JSON.parse(data) as PackedReport)} />, app);

const places = document.querySelectorAll<HTMLElement>(".page-chart");
if (places.length) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = (): void => void (document.documentElement.dataset["theme"] = dark.matches ? "dark" : "light");
  dark.addEventListener("change", follow);
  follow();
}
places.forEach((place) => {
  const chart = JSON.parse(place.textContent!) as ValueChartData;
  place.replaceChildren();
  render(<ValueChart data={chart} />, place);
});
