/** What the colours and shapes of the time axis mean. */

import { countText } from "../../../text/numbers";
import { PHASES, type Story } from "./entries";

export function Legend({ story }: { story: Story }) {
  const { generations = 0, incidents = 0, checkpoints = 0 } = story.counts;
  return (
    <p class="story-legend">
      <b>
        {countText(generations, "generation")}, {countText(incidents, "incident")},{" "}
        {countText(checkpoints, "checkpoint")}
      </b>
      {story.incidents.length > 0 &&
        PHASES.map((phase, index) => (
          <span key={phase.id}>
            <i class={`dot fill-${index + 1}`} aria-hidden="true" />
            {phase.label}
          </span>
        ))}
      <span>┴ checkpoint</span>
      {story.mirrors.length > 0 && <span>╷ mirrored step</span>}
      <span>◆ request</span>
      <span>- - repeated steps</span>
      {story.mirrored_step !== null && <span>step {story.mirrored_step} is mirrored now</span>}
      {story.nodes_since_generation > 1 && (
        <span>nodes are known from generation {story.nodes_since_generation} on</span>
      )}
    </p>
  );
}
