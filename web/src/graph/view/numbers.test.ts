import { expect, test } from "vitest";

import { CATALOGUE } from "../testing/object-info";
import { clamped, isWithin, readNumber, stepped } from "./widgets/numbers";

function input(type: string, name: string) {
  const found = CATALOGUE.get(type)?.inputs.find((one) => one.name === name);
  if (!found) throw new Error(name);
  return found;
}

const [seed, width, cfg] = [
  input("KSampler", "seed"),
  input("EmptyLatentImage", "width"),
  input("KSampler", "cfg"),
];

test("typed numbers are read whole, and nonsense is none", () => {
  expect(readNumber("18446744073709551615", seed)).toBe(18446744073709551615n);
  expect(readNumber("42", seed)).toBe(42);
  expect(readNumber("4.5", seed)).toBeNull();
  expect(readNumber("7,5", cfg)).toBe(7.5);
  expect(readNumber("seven", cfg)).toBeNull();
});

test("numbers keep to their limits", () => {
  expect(isWithin(8, width)).toBe(false);
  expect(clamped(8, width)).toBe(16);
  expect(clamped(1e6, width)).toBe(16384);
  expect(clamped(101, cfg)).toBe(100);
});

test("steps go to the next whole step", () => {
  expect(stepped(512, 1, width)).toBe(520);
  expect(stepped(513, -1, width)).toBe(512);
  expect(stepped(0.3, -1, cfg)).toBe(0.2);
  expect(stepped(0, -1, cfg)).toBe(0);
  expect(stepped(18446744073709551615n, -1, seed)).toBe(18446744073709551614n);
});
