import { expect, test } from "vitest";

import { parse, stringify } from "./json";

test("a seed of 64 bits comes back as it was", () => {
  const text = '{"request":{"seed":18446744073709551615,"steps":4},"pictures":[{"seed": 9007199254740993}]}';
  const value = parse(text) as { request: { seed: unknown }; pictures: { seed: unknown }[] };
  expect(value.request.seed).toBe(18446744073709551615n);
  expect(value.pictures[0]?.seed).toBe(9007199254740993n);
  expect(parse(stringify(value))).toEqual(value);
  expect(stringify(value)).toContain('"seed":18446744073709551615,');
});

test("small seeds stay numbers", () => {
  expect(parse('{"seed":7,"noise_seed":9007199254740991}')).toEqual({
    seed: 7,
    noise_seed: 9007199254740991,
  });
});

test("a prompt that talks about seeds is left alone", () => {
  const value = { prompt: 'say "seed": 12345678901234567890, please', seed: 1 };
  expect(parse(stringify(value))).toEqual(value);
});

test("large integers stay whole wherever they stand, digits in texts and fractions are left alone", () => {
  const text = '{"a":[12345678901234567890,0.1234567890123456,-9],"b":"no 12345678901234567890 \\" 1"}';
  expect(stringify(parse(text))).toBe(text);
});
