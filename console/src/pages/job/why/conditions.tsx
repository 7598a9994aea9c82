/** The conditions of a job: those that are not met first, each with the nodes that do not fit. */

import type { Schema } from "../../../api/types";
import { Badge } from "../../../components/badge";
import { agoText } from "../../../text/time";
import { groupedItems, messageItems } from "./message";
import { MessageText } from "./message-text";

const SHOWN_NAMES = 6;

export function Conditions({ conditions }: { conditions: readonly Schema<"Condition">[] }) {
  if (conditions.length === 0) return null;
  const ordered = [...conditions].sort((one, two) => Number(one.status) - Number(two.status));
  return (
    <section class="card" aria-labelledby="why-conditions">
      <h2 id="why-conditions">Conditions</h2>
      <ul class="why-list">
        {ordered.map((each) => (
          <li key={each.type}>
            <Badge tone={each.status ? "good" : "warning"}>{each.status ? "Met" : "Not met"}</Badge>
            <div>
              <b>{each.type}</b> <span class="quiet">{agoText(each.last_transition_time)}</span>
              <Message text={each.message || each.reason} />
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Message({ text }: { text: string }) {
  const { head, items } = messageItems(text);
  return (
    <>
      <p>
        <MessageText text={head} />
      </p>
      {items.length > 0 && (
        <ul class="why-nodes" aria-label="Nodes">
          {groupedItems(items).map((group) => (
            <li key={group.text}>
              <b>{group.names.slice(0, SHOWN_NAMES).join(", ")}</b>
              {group.names.length > SHOWN_NAMES && ` and ${group.names.length - SHOWN_NAMES} more`} {group.text}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
