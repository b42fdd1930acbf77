export const en = {
  "graph.title": "Graph",
} as const;

export const zh: Record<keyof typeof en, string> = {
  "graph.title": "节点图",
};
