/** The queue and the projects: who has devices, who waits and why, and the quotas that decide it. */

import { useState } from "preact/hooks";
import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { EmptyState } from "../../components/states";
import { concernsNodes, concernsQueue, useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { href, query, setQuery } from "../../state/router";
import { countText } from "../../text/numbers";
import { Lanes } from "./lanes";
import { ProjectDialog } from "./project-dialog";
import { WaitingTable } from "./waiting-table";
import "./queue.css";

const FIRST_JOBS = 200;
const MOST_JOBS = 1000;

export default function QueuePage() {
  const project = query.value.get("project") ?? undefined;
  const [limit, setLimit] = useState(FIRST_JOBS);
  const projects = useResource(async (signal) => (await get("/v1/projects", { signal })).projects, []);
  const queue = useResource(
    (signal) => get("/v1/queue", { query: { limit, ...(project && { project }) }, signal }),
    [limit, project],
  );
  const refresh = () => {
    projects.refresh();
    queue.refresh();
  };
  useChanges(concernsQueue, queue.refresh);
  useChanges((change) => change.topic === "project" || concernsNodes(change), projects.refresh);
  const edited = query.value.get("edit");
  const settings = projects.data.value?.find((each) => each.name === edited);
  return (
    <>
      <PageHeader title="Queue and projects">
        <a class="button" href={href("what-if")}>
          What if…
        </a>
        <NewProject />
      </PageHeader>
      <ResourceView resource={projects} label="Loading projects">
        {(found) => <Lanes projects={found} queued={queue.data.value?.projects ?? []} selected={project} />}
      </ResourceView>
      <ResourceView resource={queue} label="Loading the queue">
        {(found) => (
          <Waiting queue={found} project={project} onMore={() => setLimit(MOST_JOBS)} hasMore={limit < MOST_JOBS} />
        )}
      </ResourceView>
      {edited && projects.data.value && (
        <ProjectDialog
          key={edited}
          name={edited}
          project={settings}
          onClose={() => setQuery({ edit: undefined })}
          onDone={refresh}
        />
      )}
    </>
  );
}

function NewProject() {
  const [name, setName] = useState("");
  return (
    <form
      class="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (name) setQuery({ edit: name });
      }}
    >
      <input
        aria-label="Name of a new project"
        placeholder="New project"
        size={12}
        value={name}
        pattern="[a-z0-9]([a-z0-9\-]*[a-z0-9])?"
        onInput={(event) => setName(event.currentTarget.value)}
      />
      <button type="submit" disabled={name === ""}>
        Set quota
      </button>
    </form>
  );
}

function Waiting(props: { queue: Schema<"Queue">; project: string | undefined; onMore: () => void; hasMore: boolean }) {
  const { queue, project } = props;
  const scope = project ? ` of ${project}` : "";
  return (
    <section class="queue-waiting" aria-label="Waiting jobs">
      <h2>
        {countText(queue.total, "job")}
        {scope} wait{queue.total === 1 ? "s" : ""}, in scheduling order
      </h2>
      {project && (
        <button type="button" class="link" onClick={() => setQuery({ project: undefined })}>
          Show all projects
        </button>
      )}
      {queue.jobs.length === 0 ? (
        <EmptyState title="No job waits">
          <p>
            Jobs that are submitted now start as soon as devices are free. <a href={href("submit")}>Submit a job</a>.
          </p>
        </EmptyState>
      ) : (
        <WaitingTable
          jobs={queue.jobs}
          total={queue.total}
          onNearEnd={props.hasMore && queue.total > queue.jobs.length ? props.onMore : undefined}
        />
      )}
      {!props.hasMore && queue.total > queue.jobs.length && (
        <p class="quiet">
          The table shows the first {countText(queue.jobs.length, "job")}. Select a project to see fewer.
        </p>
      )}
    </section>
  );
}
