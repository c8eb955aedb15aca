// Entry of the server's pages.
import { render } from "preact";
import "../style/report.css";
import "../style/pages.css";
import { App } from "./App";

const app = document.getElementById("app");
if (app) render(<App />, app);
