export const en = {
  "measure.title": "Measure",
} as const;

export const zh: Record<keyof typeof en, string> = {
  "measure.title": "测量",
};
