/** Lines with a text, in the output of all ranks and generations, each with a link to its place. */

import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ResourceView } from "../../../components/resource-view";
import { useResource } from "../../../state/resource";
import { href } from "../../../state/router";
import { bytesText, countText } from "../../../text/numbers";
import { ansiSpans, markedSpans } from "./ansi";

type Matches = Schema<"LogMatches">;

export function SearchResults(props: { job: string; text: string; rank: number | undefined; onClose: () => void }) {
  const { job, text, rank } = props;
  const [limit, setLimit] = useState(1);
  const found = useResource((signal) => searchAll(job, text, rank, limit, signal), [job, text, rank, limit]);
  return (
    <section class="card logs-search" aria-label="Lines found">
      <ResourceView resource={found} label={`Searching ${rank === undefined ? "all ranks" : `rank ${rank}`}`}>
        {(data) => (
          <>
            <p class="row">
              <b>
                {countText(data.matches.length, "line")} with “{text}”
              </b>
              <span class="quiet">
                {bytesText(data.searched_bytes)} searched, by generation, rank and output
                {data.unread.length > 0 && `; ${countText(data.unread.length, "output")} could not be read`}
              </span>
              {data.next_cursor !== null && (
                <button type="button" onClick={() => setLimit(limit + 1)}>
                  Search more
                </button>
              )}
              <button type="button" class="link" onClick={props.onClose}>
                Close
              </button>
            </p>
            {data.matches.length === 0 && data.next_cursor === null && (
              <p class="quiet">No line contains it. Try a shorter text, or all ranks.</p>
            )}
            <ol aria-label="Lines">
              {data.matches.map((each) => (
                <li key={`${each.generation}.${each.rank}.${each.stream}.${each.offset}`}>
                  <Match job={job} text={text} match={each} />
                </li>
              ))}
            </ol>
          </>
        )}
      </ResourceView>
    </section>
  );
}

function Match({ job, text, match }: { job: string; text: string; match: Schema<"LogMatch"> }) {
  const { generation, rank, stream, offset } = match;
  const values = { generation: `${generation}`, rank: `${rank}`, stream, offset: `${offset}`, text };
  return (
    <a href={href(`jobs/${job}/logs`, values)}>
      <span class="quiet">
        rank {rank}, {stream}, generation {generation}
      </span>{" "}
      <code>
        {markedSpans(ansiSpans(match.line), text).map((span, index) =>
          span.isMarked ? <mark key={`${index}`}>{span.text}</mark> : span.text,
        )}
      </code>
    </a>
  );
}

/** Search the given number of parts of the output. */
async function searchAll(
  job: string,
  text: string,
  rank: number | undefined,
  parts: number,
  signal: AbortSignal,
): Promise<Matches> {
  const where = rank === undefined ? {} : { rank };
  let found: Matches = { matches: [], next_cursor: null, searched_bytes: 0, unread: [] };
  for (let part = 0; part < parts; part += 1) {
    const cursor = found.next_cursor === null ? {} : { cursor: found.next_cursor };
    const page = await get("/v1/jobs/{job}/logs/search", {
      path: { job },
      query: { text, limit: 200, ...where, ...cursor },
      signal,
    });
    found = {
      matches: [...found.matches, ...page.matches],
      next_cursor: page.next_cursor,
      searched_bytes: found.searched_bytes + page.searched_bytes,
      unread: [...found.unread, ...page.unread],
    };
    if (page.next_cursor === null) break;
  }
  return found;
}
