import { expect, test } from "vitest";

import { sayer } from "./say";
import { LANGUAGES } from "./words";

test("each language is spoken", () => {
  expect(sayer("en")("shell.theme")).toBe("Theme");
  expect(sayer("zh")("shell.theme")).toBe("主题");
});

test("both languages leave the same blanks", () => {
  const blanks = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();
  const zh: Record<string, string> = LANGUAGES.zh;
  for (const [word, text] of Object.entries(LANGUAGES.en)) {
    expect([word, blanks(zh[word] ?? "")]).toEqual([word, blanks(text)]);
  }
});
