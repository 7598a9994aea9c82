import { render } from "preact";
import { App } from "./app";
import { installRouter } from "./state/router";
import { installTheme } from "./state/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/components.css";

installTheme();
installRouter();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
