import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { LanguageProvider } from "./language/LanguageProvider";
import { App } from "./shell/App";
import { enterRoom } from "./shell/route";
import { applyTheme, chosenTheme } from "./shell/theme";
import "./styles/index.css";

enterRoom();
applyTheme(chosenTheme());
const root = document.getElementById("root");
if (root === null) throw new Error("the page has no #root");
createRoot(root).render(
  <StrictMode>
    <LanguageProvider>
      <App />
    </LanguageProvider>
  </StrictMode>,
);
