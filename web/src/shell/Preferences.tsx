import { useState } from "react";

import { useLanguage } from "../language/say";
import { applyTheme, chosenTheme, THEMES, type Theme } from "./theme";

/** Theme and language. */
export function Preferences() {
  const { language, say, speak } = useLanguage();
  const [theme, setTheme] = useState(chosenTheme);
  const choose = (next: Theme) => {
    applyTheme(next);
    setTheme(next);
  };
  return (
    <div className="preferences">
      <select
        aria-label={say("shell.theme")}
        value={theme}
        onChange={(event) => {
          choose(event.target.value as Theme);
        }}
      >
        {THEMES.map((name) => (
          <option key={name} value={name}>
            {say(`shell.theme.${name}`)}
          </option>
        ))}
      </select>
      <select
        aria-label={say("shell.language")}
        value={language}
        onChange={(event) => {
          speak(event.target.value === "zh" ? "zh" : "en");
        }}
      >
        <option value="en" lang="en">
          English
        </option>
        <option value="zh" lang="zh-Hans">
          中文
        </option>
      </select>
    </div>
  );
}
