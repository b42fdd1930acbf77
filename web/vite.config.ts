import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// While developing, `CALOTYPE_URL` is a deployment that answers what the page asks.
const deployment = process.env.CALOTYPE_URL ?? "http://127.0.0.1:8188";
const ASKED = [
  "/v1",
  "/calotype",
  "/metrics",
  "/healthz",
  "/readyz",
  "/prompt",
  "/queue",
  "/history",
  "/interrupt",
];
const ASKED_BY_GRAPHS = ["/view", "/upload", "/object_info", "/models", "/embeddings", "/system_stats"];

export default defineConfig({
  plugins: [react()],
  // Wherever the page is served from, its parts are beside it.
  base: "./",
  build: {
    outDir: "../src/calotype/resources/assets/page",
    emptyOutDir: true,
    target: "es2022",
    // A policy that forbids data: scripts and fonts holds for everything built.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
  },
  server: {
    proxy: {
      ...Object.fromEntries([...ASKED, ...ASKED_BY_GRAPHS].map((path) => [path, { target: deployment }])),
      "/ws": { target: deployment, ws: true },
    },
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    // Making a document for every file would take longer than all tests.
    pool: "threads",
    isolate: false,
    maxWorkers: 1,
    minWorkers: 1,
  },
});
