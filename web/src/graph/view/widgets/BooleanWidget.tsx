import type { WidgetProps } from "./widget";

export function BooleanWidget({ value, name, change, settle }: WidgetProps) {
  return (
    <input
      type="checkbox"
      role="switch"
      aria-label={name}
      checked={value === true}
      onChange={(event) => {
        change(event.target.checked);
        settle();
      }}
    />
  );
}
