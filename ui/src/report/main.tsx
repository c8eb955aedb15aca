// Entry of the one-file report: reads the data that html.py put beside this script, and draws the page.
import { render } from "preact";
import { readDocument, type Json } from "../data/document";
import "../style/report.css";
import { Page } from "./Page";

const data = document.getElementById("paceline-data")?.textContent;
const app = document.getElementById("app");
if (data && app) render(<Page document={readDocument(JSON.parse(data) as Json)} />, app);
