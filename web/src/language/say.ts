/** Words with their blanks filled in. */

import { createContext, useContext } from "react";

import { LANGUAGES, type Language, type Word } from "./words";

export type Values = Readonly<Record<string, string | number>>;

export type Say = (word: Word, values?: Values) => string;

const REMEMBERED = "calotype.language";

/** `{name}` in the text becomes the value of that name. */
export function sayer(language: Language): Say {
  return (word, values = {}) =>
    LANGUAGES[language][word].replace(/\{(\w+)\}/g, (blank, name: string) => String(values[name] ?? blank));
}

/** What was chosen here before, or what the browser prefers. */
export function chosenLanguage(): Language {
  const remembered = localStorage.getItem(REMEMBERED);
  if (remembered === "en" || remembered === "zh") return remembered;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function rememberLanguage(language: Language): void {
  localStorage.setItem(REMEMBERED, language);
}

interface Spoken {
  language: Language;
  say: Say;
  speak: (language: Language) => void;
}

export const SpokenContext = createContext<Spoken>({
  language: "en",
  say: sayer("en"),
  speak: () => undefined,
});

/** `const say = useSay(); say("studio.generate")`. */
export function useSay(): Say {
  return useContext(SpokenContext).say;
}

export function useLanguage(): Spoken {
  return useContext(SpokenContext);
}
