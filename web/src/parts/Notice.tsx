import { ApiError, LostError } from "../api/problem";
import { useSay } from "../language/say";

/** What went wrong, in the server's words. A lost server has a banner of its own. */
export function Notice({ error, onClose }: { error: unknown; onClose?: () => void }) {
  const say = useSay();
  if (error === null || error === undefined || error instanceof LostError) return null;
  if (error instanceof ApiError && error.status === 401) return null;
  const problems = error instanceof ApiError ? error.problems : [];
  return (
    <div className="notice" role="alert">
      {problems.length > 0 ? (
        <ul>
          {problems.map((problem) => (
            <li key={problem.field + problem.rule}>
              <strong>{problem.field.replace(/^request\./, "")}</strong>: {problem.rule}
            </li>
          ))}
        </ul>
      ) : (
        <p>{error instanceof Error ? error.message : say("shell.failed")}</p>
      )}
      {onClose && (
        <button type="button" className="plain" aria-label={say("shell.close")} onClick={onClose}>
          ×
        </button>
      )}
    </div>
  );
}
