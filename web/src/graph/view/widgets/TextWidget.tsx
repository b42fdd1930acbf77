import { asText } from "../../model/json";
import type { WidgetProps } from "./widget";

export function TextWidget({ input, value, name, change, settle }: WidgetProps) {
  const shared = {
    "aria-label": name,
    value: asText(value),
    spellCheck: false,
    onBlur: settle,
  };
  if (!input.multiline)
    return (
      <input
        type="text"
        {...shared}
        onChange={(event) => {
          change(event.target.value);
        }}
      />
    );
  return (
    <textarea
      className="nowheel"
      rows={4}
      {...shared}
      placeholder={input.name}
      onChange={(event) => {
        change(event.target.value);
      }}
    />
  );
}
