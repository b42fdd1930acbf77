import { cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { generate } from "./generate";
import { SettingsForm } from "./SettingsForm";

vi.mock("./generate", () => ({ generate: vi.fn(() => Promise.resolve()) }));

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

test("a key that is held down generates once", () => {
  vi.stubGlobal("fetch", () => new Promise(() => undefined));
  const drawn = render(<SettingsForm />);
  for (const repeat of [false, true, true])
    fireEvent.keyDown(drawn.getByLabelText("Prompt"), { key: "Enter", ctrlKey: true, repeat });
  expect(generate).toHaveBeenCalledTimes(1);
});
