export const en = {
  "system.title": "System",
} as const;

export const zh: Record<keyof typeof en, string> = {
  "system.title": "系统",
};
