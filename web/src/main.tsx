import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { LanguageProvider } from "./language/LanguageProvider";
import { App } from "./shell/App";
import { applyTheme, chosenTheme } from "./shell/theme";
import "./styles/index.css";

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
