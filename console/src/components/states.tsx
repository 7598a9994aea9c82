/** What a page shows instead of data: it loads, it is empty, it failed. Each says what to do next. */

import type { ComponentChildren } from "preact";
import type { Problem } from "../api/problem";

/** Data is on its way. */
export function Loading({ label }: { label: string }) {
  return (
    <p class="state" role="status">
      {label}…
    </p>
  );
}

/** There is nothing to show. The children say what to do next. */
export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A request failed. */
export function ErrorState({ problem, onRetry }: { problem: Problem; onRetry?: (() => void) | undefined }) {
  return (
    <div class="state" role="alert">
      <h2>{titleOf(problem)}</h2>
      <p>{problem.message}</p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A line above data that could not be loaded again: the data below is older. */
export function StaleNotice({ problem, onRetry }: { problem: Problem; onRetry: () => void }) {
  return (
    <p class="notice warning" role="status">
      This page could not be updated: {problem.message}.{" "}
      <button type="button" class="link" onClick={onRetry}>
        Try again
      </button>
    </p>
  );
}

function titleOf(problem: Problem): string {
  if (problem.status === 403) return "You may not see this";
  if (problem.status === 404) return "Not found";
  if (problem.isTransient) return "The server does not answer";
  return "The request failed";
}
