/** Data of the server in a component: loaded, loaded again on changes, kept while it loads. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type Problem, toProblem } from "../api/problem";

export interface Resource<T> {
  /** Newest data; undefined until the first answer. It stays while newer data is loaded, and if that fails. */
  data: ReadonlySignal<T | undefined>;
  /** Why the newest request failed; undefined if it succeeded. */
  problem: ReadonlySignal<Problem | undefined>;
  isLoading: ReadonlySignal<boolean>;
  /** Load again. Calls during a request cause one more request after it. */
  refresh: () => void;
  /** Replace the data, for example with the answer to a change. */
  set: (data: T) => void;
}

/**
 * Load data, and again whenever a value of `keys` changes.
 *
 * `load` must pass on the signal, so that outdated requests end.
 */
export function useResource<T>(load: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[]): Resource<T> {
  const newest = useRef(load);
  newest.current = load;
  const loader = useMemo(() => new Loader<T>((abort) => newest.current(abort)), []);
  useEffect(() => {
    loader.restart();
    return () => loader.stop();
  }, keys);
  return loader;
}

class Loader<T> implements Resource<T> {
  readonly data: Signal<T | undefined> = signal(undefined);
  readonly problem: Signal<Problem | undefined> = signal(undefined);
  readonly isLoading = signal(true);
  private current: AbortController | undefined;
  private isStale = false;

  constructor(private readonly load: (signal: AbortSignal) => Promise<T>) {}

  refresh = (): void => {
    if (this.current) this.isStale = true;
    else void this.run();
  };

  set = (data: T): void => {
    this.data.value = data;
    this.problem.value = undefined;
  };

  restart(): void {
    this.stop();
    void this.run();
  }

  stop(): void {
    this.current?.abort();
    this.current = undefined;
    this.isStale = false;
  }

  private async run(): Promise<void> {
    const abort = new AbortController();
    this.current = abort;
    this.isLoading.value = true;
    try {
      const data = await this.load(abort.signal);
      if (this.current === abort) this.set(data);
    } catch (error) {
      if (this.current === abort) this.problem.value = toProblem(error);
    }
    if (this.current !== abort) return;
    this.current = undefined;
    this.isLoading.value = false;
    if (this.isStale) {
      this.isStale = false;
      void this.run();
    }
  }
}
