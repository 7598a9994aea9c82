/** What a browser shows that is not signed in. */

import { useEffect } from "preact/hooks";
import { get } from "../../api/client";
import { loadIdentity } from "../../state/identity";
import { useResource } from "../../state/resource";
import { path } from "../../state/router";

export function SignInPage() {
  const ways = useResource((signal) => get("/v1/sign-in", { signal }), []);
  useEffect(() => {
    document.title = "Sign in · regroup";
  }, []);
  // A link that was opened in another tab stores the proof for this one, too.
  useEffect(() => {
    const reload = () => void loadIdentity();
    globalThis.addEventListener("storage", reload);
    return () => globalThis.removeEventListener("storage", reload);
  }, []);
  const command = path.value === "" ? "regroup console" : `regroup console ${path.value}`;
  return (
    <main class="alone">
      <h1>Sign in</h1>
      <p>Type this in a terminal where you use regroup. It opens this page and signs this browser in.</p>
      <pre>{command}</pre>
      {ways.data.value?.issuer && (
        <p>
          Not signed in there? Type <code>regroup login</code> first. People sign in at {ways.data.value.issuer}.
        </p>
      )}
      <button type="button" class="primary" onClick={() => void loadIdentity()}>
        I have signed in
      </button>
    </main>
  );
}
