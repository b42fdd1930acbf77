import { useSay } from "../language/say";
import { bytes } from "../parts/format";

/** How much of something is left. */
export function Room({ name, free, total }: { name: string; free: number | null; total: number | null }) {
  const say = useSay();
  const words = say("system.free.of", { free: bytes(free), total: bytes(total) });
  return (
    <div className="space">
      <span>{words}</span>
      {free !== null && total !== null && total > 0 && (
        <meter aria-label={`${name}: ${words}`} min={0} max={total} high={total * 0.9} value={total - free} />
      )}
    </div>
  );
}
