/** What a person must know while a change has no answer. */

import { unanswered } from "../api/client";

/** Show that a change is sent again. `isBusy`: it has been sent, and is not done yet. */
export function RepeatNotice({ isBusy }: { isBusy: boolean }) {
  return (
    <div role="status">
      {isBusy && unanswered.value > 0 && (
        <p class="notice warning">
          The server does not answer. The change is sent again until it does, and takes effect once.
        </p>
      )}
    </div>
  );
}
