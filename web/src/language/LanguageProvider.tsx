import { useEffect, useMemo, useState, type ReactNode } from "react";

import { chosenLanguage, rememberLanguage, sayer, SpokenContext } from "./say";
import type { Language } from "./words";

const TAGS: Record<Language, string> = { en: "en", zh: "zh-Hans" };

export function LanguageProvider({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState(chosenLanguage);
  useEffect(() => {
    document.documentElement.lang = TAGS[language];
  }, [language]);
  const spoken = useMemo(() => {
    const speak = (next: Language) => {
      rememberLanguage(next);
      setLanguage(next);
    };
    return { language, say: sayer(language), speak };
  }, [language]);
  return <SpokenContext value={spoken}>{children}</SpokenContext>;
}
