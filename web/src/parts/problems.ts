/** Which fields of a form the server complained about. */

import { createContext, useContext } from "react";

import { ApiError } from "../api/problem";

export const ProblemsContext = createContext<ReadonlyMap<string, string>>(new Map());

export function problemsOf(error: unknown): ReadonlyMap<string, string> {
  if (!(error instanceof ApiError)) return new Map();
  return new Map(error.problems.map((problem) => [problem.field.replace(/^request\./, ""), problem.rule]));
}

export function useProblem(field: string): string | undefined {
  return useContext(ProblemsContext).get(field);
}
