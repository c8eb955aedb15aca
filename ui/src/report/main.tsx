// Entry of the one-file report: reads the data that html.py put beside this script, and draws the page.
import { render } from "preact";
import { readDocument, type PackedReport } from "../api/document";
import "../style/report.css";
import { ReportPage } from "./ReportPage";

const data = document.getElementById("paceline-data")?.textContent;
const app = document.getElementById("app");
if (data && app) render(<ReportPage document={readDocument(JSON.parse(data) as PackedReport)} />, app);
