/** Stacks of the selected ranks, side by side by equal stacks; the outliers first. */

import { useMemo } from "preact/hooks";
import { get } from "../../../api/client";
import { Badge } from "../../../components/badge";
import { ResourceView } from "../../../components/resource-view";
import { useResource } from "../../../state/resource";
import { href } from "../../../state/router";
import { countText } from "../../../text/numbers";
import { ranksText } from "./rank-state";
import { differentLines, groupStacks, type RankStack, type StackGroup } from "./stack-groups";

export function Stacks({ job, selected }: { job: string; selected: ReadonlySet<number> }) {
  const stacks = useResource((signal) => get("/v1/jobs/{job}/stacks", { path: { job }, signal }), [job]);
  return (
    <ResourceView resource={stacks} label="Reading the stacks of all ranks">
      {(data) => (
        <>
          <p class="row">
            <button type="button" onClick={stacks.refresh}>
              Read again
            </button>
            <span class="quiet">
              Ranks with equal stacks are one group. Lines that the largest group lacks are marked ≠.
            </span>
          </p>
          <Groups job={job} stacks={data.ranks} selected={selected} />
        </>
      )}
    </ResourceView>
  );
}

function Groups({
  job,
  stacks,
  selected,
}: {
  job: string;
  stacks: readonly RankStack[];
  selected: ReadonlySet<number>;
}) {
  const groups = useMemo(() => groupStacks(stacks), [stacks]);
  const largest = groups.at(-1);
  const shown = groups.filter(
    (group) => group === largest || selected.size === 0 || group.ranks.some((each) => selected.has(each.rank)),
  );
  return (
    <div class="ranks-stacks">
      {shown.map((group) => (
        <Group key={group.ranks[0]?.rank} job={job} group={group} largest={largest} />
      ))}
    </div>
  );
}

function Group({ job, group, largest }: { job: string; group: StackGroup; largest: StackGroup | undefined }) {
  const different = differentLines(group, largest);
  const ranks = ranksText(group.ranks.map((each) => each.rank));
  const first = group.ranks[0];
  return (
    <section class={group.isOutlier ? "card ranks-outlier" : "card"} aria-label={`Stacks of ${ranks}`}>
      <h3 class="row">
        {countText(group.ranks.length, "rank")}: {ranks}
        {group.isOutlier && <Badge tone="warning">Differs</Badge>}
      </h3>
      {first && (
        <p class="quiet">
          {first.node}, process {first.pid}
          {first.phase !== null && `, ${first.phase} of step ${first.step}`} ·{" "}
          <a href={href(`jobs/${job}/logs`, { rank: String(first.rank) })}>Log of rank {first.rank}</a>
        </p>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long stack scrolls with the keyboard */}
      <pre tabIndex={0}>
        {group.lines.map((line, index) => (
          <span key={`${index}`} class={different[index] ? "ranks-different" : ""}>
            {different[index] ? "≠ " : "  "}
            {line}
            {"\n"}
          </span>
        ))}
      </pre>
    </section>
  );
}
