/** Prometheus's text as values. Knows nothing of what they mean. */

export interface Sample {
  name: string;
  labels: string;
  value: number;
}

export interface Family {
  name: string;
  help: string;
  kind: string;
  samples: Sample[];
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;

export function parseMetrics(text: string): Family[] {
  const families: Family[] = [];
  for (const line of text.split("\n")) {
    const [, name, help] = /^# HELP (\S+) (.*)$/.exec(line) ?? [];
    if (name !== undefined) families.push({ name, help: help ?? "", kind: "", samples: [] });
    const family = families.at(-1);
    if (family) read(line, family);
  }
  return families.filter((family) => family.samples.length > 0);
}

function read(line: string, family: Family): void {
  family.kind = /^# TYPE \S+ (\w+)$/.exec(line)?.[1] ?? family.kind;
  const [, name, labels, value] = SAMPLE.exec(line) ?? [];
  // When a counter began is no news.
  if (name === undefined || name.endsWith("_created")) return;
  family.samples.push({ name, labels: labels ?? "", value: Number(value) });
}

/** A histogram in one line: how many, and their mean. */
export function meanOf(family: Family): { count: number; mean: number | null } {
  const total = (ending: string) =>
    family.samples
      .filter((sample) => sample.name === `${family.name}${ending}`)
      .reduce((sum, sample) => sum + sample.value, 0);
  const count = total("_count");
  return { count, mean: count > 0 ? total("_sum") / count : null };
}
