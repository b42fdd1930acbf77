import { short } from "../parts/format";
import type { Line } from "./lines";
import { ticks } from "./ticks";

const [WIDTH, HEIGHT] = [640, 300];
const EDGE = { left: 62, right: 14, top: 12, bottom: 40 };

interface Props {
  name: string;
  lines: Line[];
  xName: string;
  format: (value: number) => string;
}

/** Lines over a number; both axes begin at zero, so that lengths can be compared. */
export function LinePlot({ name, lines, xName, format }: Props) {
  const points = lines.flatMap((line) => line.points);
  const across = ticks(Math.max(...points.map((point) => point.x)));
  const up = ticks(Math.max(...points.map((point) => point.y)));
  const [mostX, mostY] = [across.at(-1) ?? 1, up.at(-1) ?? 1];
  const x = (value: number) => EDGE.left + (value / mostX) * (WIDTH - EDGE.left - EDGE.right);
  const y = (value: number) => HEIGHT - EDGE.bottom - (value / mostY) * (HEIGHT - EDGE.top - EDGE.bottom);
  return (
    <figure className="plot">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={name}>
        {up.map((value) => (
          <g key={value}>
            <line className="rule" x1={EDGE.left} x2={WIDTH - EDGE.right} y1={y(value)} y2={y(value)} />
            <text x={EDGE.left - 7} y={y(value) + 4} textAnchor="end">
              {format(value)}
            </text>
          </g>
        ))}
        {across.map((value) => (
          <text key={value} x={x(value)} y={HEIGHT - EDGE.bottom + 16} textAnchor="middle">
            {short(value)}
          </text>
        ))}
        <text x={(EDGE.left + WIDTH - EDGE.right) / 2} y={HEIGHT - 6} textAnchor="middle">
          {xName}
        </text>
        {lines.map((line, at) => (
          <g key={line.name} className={`line hue-${at % 6}`}>
            <polyline points={line.points.map((point) => `${x(point.x)},${y(point.y)}`).join(" ")} />
            {line.points.map((point) => (
              <circle key={point.x} cx={x(point.x)} cy={y(point.y)} r={3.5}>
                <title>{`${line.name}\n${xName} ${short(point.x)}: ${format(point.y)}`}</title>
              </circle>
            ))}
          </g>
        ))}
      </svg>
      <figcaption>
        <ul className="legend">
          {lines.map((line, at) => (
            <li key={line.name} className={`hue-${at % 6}`}>
              {line.name}
            </li>
          ))}
        </ul>
      </figcaption>
    </figure>
  );
}
