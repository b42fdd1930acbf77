export const en = {
  "studio.title": "Studio",
} as const;

export const zh: Record<keyof typeof en, string> = {
  "studio.title": "创作",
};
