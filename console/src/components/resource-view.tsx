/** Data of a resource, or its state. Old data stays on the page while it is loaded again. */

import type { ComponentChildren } from "preact";
import type { Resource } from "../state/resource";
import { ErrorState, Loading, StaleNotice } from "./states";

export function ResourceView<T>(props: {
  resource: Resource<T>;
  /** What is loaded, for example `Loading jobs`. */
  label: string;
  children: (data: T) => ComponentChildren;
}) {
  const { resource, label, children } = props;
  const data = resource.data.value;
  const problem = resource.problem.value;
  if (data === undefined) {
    return problem === undefined ? (
      <Loading label={label} />
    ) : (
      <ErrorState problem={problem} onRetry={resource.refresh} />
    );
  }
  return (
    <>
      {problem && <StaleNotice problem={problem} onRetry={resource.refresh} />}
      {children(data)}
    </>
  );
}
