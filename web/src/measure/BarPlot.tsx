import type { Bar } from "./lines";

interface Props {
  name: string;
  bars: Bar[];
  format: (value: number) => string;
}

/** Bars from zero, with their names and values in words. */
export function BarPlot({ name, bars, format }: Props) {
  const most = Math.max(...bars.map((bar) => bar.value), Number.MIN_VALUE);
  return (
    <ul className="bars" aria-label={name}>
      {bars.map((bar) => (
        <li key={bar.name}>
          <span className="bar-name">{bar.name}</span>
          <svg className="bar-line" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
            <rect width={Math.max(0.4, (bar.value / most) * 100)} height={10} />
          </svg>
          <span className="number">{format(bar.value)}</span>
        </li>
      ))}
    </ul>
  );
}
