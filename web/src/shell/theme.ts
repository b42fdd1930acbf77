/** Dark, light, or as the system has it. */

export const THEMES = ["system", "dark", "light"] as const;

export type Theme = (typeof THEMES)[number];

const REMEMBERED = "calotype.theme";

export function chosenTheme(): Theme {
  const remembered = localStorage.getItem(REMEMBERED);
  return THEMES.find((theme) => theme === remembered) ?? "system";
}

export function applyTheme(theme: Theme): void {
  localStorage.setItem(REMEMBERED, theme);
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
