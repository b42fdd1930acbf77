/** What the server said was wrong, in its own words. */

export interface FieldProblem {
  field: string;
  rule: string;
}

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly problems: readonly FieldProblem[] = [],
    /** The whole answer, for interfaces that say more. */
    readonly body: unknown = null,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** The server did not answer at all. */
export class LostError extends Error {
  constructor(cause: unknown) {
    super("the server does not answer", { cause });
    this.name = "LostError";
  }
}

export function apiError(status: number, body: unknown): ApiError {
  const error = isObject(body) ? body.error : undefined;
  if (!isObject(error))
    return new ApiError(`the server answered with ${status}`, status, "unknown", [], body);
  const problems = Array.isArray(error.problems) ? error.problems.filter(isFieldProblem) : [];
  const code = typeof error.code === "string" ? error.code : "unknown";
  const message = typeof error.message === "string" ? error.message : `the server answered with ${status}`;
  return new ApiError(message, status, code, problems, body);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isFieldProblem(value: unknown): value is FieldProblem {
  return isObject(value) && typeof value.field === "string" && typeof value.rule === "string";
}
