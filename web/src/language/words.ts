/** All words of the page. Each room has its own `words.ts`; a key that one language lacks is a type error there. */

import * as graph from "../graph/words";
import * as measure from "../measure/words";
import * as shell from "../shell/words";
import * as studio from "../studio/words";
import * as system from "../system/words";

export const en = { ...shell.en, ...studio.en, ...graph.en, ...measure.en, ...system.en };

export type Word = keyof typeof en;

const zh: Record<Word, string> = { ...shell.zh, ...studio.zh, ...graph.zh, ...measure.zh, ...system.zh };

export const LANGUAGES = { en, zh } as const;

export type Language = keyof typeof LANGUAGES;
