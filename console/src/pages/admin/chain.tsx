/** The chain of audit records: note its end elsewhere, and a later verification finds every change of a record. */

import { get } from "../../api/client";
import { ResourceView } from "../../components/resource-view";
import { useResource } from "../../state/resource";
import { numberText } from "../../text/numbers";

export function Chain() {
  const chain = useResource((signal) => get("/v1/audit/chain", { signal }), []);
  return (
    <section class="card" aria-labelledby="chain">
      <h2 id="chain">Chain of records</h2>
      <ResourceView resource={chain} label="Loading the chain">
        {({ start, end }) => (
          <>
            <dl class="admin-difference">
              <dt>End</dt>
              <dd>
                position {numberText(end.position, 12)}, digest <code>{end.digest}</code>
              </dd>
              <dt>Start</dt>
              <dd>
                position {numberText(start.position, 12)}, digest <code>{start.digest}</code>
              </dd>
            </dl>
            <p class="quiet">
              Note the end in another place. Later,{" "}
              <code>
                regroup audit verify --noted {end.position}:{end.digest.slice(0, 8)}…
              </code>{" "}
              finds each record before it that was changed or removed.
            </p>
          </>
        )}
      </ResourceView>
    </section>
  );
}
