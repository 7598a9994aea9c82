/** The console: its frame, and the page of the address in it. */

import { useEffect } from "preact/hooks";
import { LazyView } from "./components/lazy-view";
import { ErrorState, Loading } from "./components/states";
import { Toasts } from "./components/toasts";
import { findPage } from "./pages";
import { SignInPage } from "./pages/sign-in";
import { Shell } from "./shell";
import { connectChanges } from "./state/changes";
import { firstChange, identityProblem, isSignedOut, loadIdentity, me } from "./state/identity";
import { path } from "./state/router";

export function App() {
  useEffect(() => void loadIdentity(), []);
  const isKnown = me.value !== undefined;
  useEffect(() => (isKnown ? connectChanges(firstChange.value) : undefined), [isKnown]);
  if (isSignedOut.value) return <SignInPage />;
  if (identityProblem.value !== undefined && !isKnown) {
    return (
      <main class="alone">
        <ErrorState problem={identityProblem.value} onRetry={() => void loadIdentity()} />
      </main>
    );
  }
  if (!isKnown) return <Loading label="Signing in" />;
  const { page, values } = findPage(path.value);
  return (
    <Shell page={page}>
      <LazyView key={page.pattern} load={page.load} values={values} />
      <Toasts />
    </Shell>
  );
}
