/** The project of a page, in its address. */

import { get } from "../api/client";
import { me } from "../state/identity";
import { useResource } from "../state/resource";
import { query, setQuery } from "../state/router";
import { TextField } from "./field";

/** Return the projects that the person may choose, and load them. */
export function useProjects(): readonly string[] {
  const found = useResource((signal) => get("/v1/projects", { signal }), []);
  const own = (me.value?.memberships ?? []).map((each) => each.project);
  const listed = (found.data.value?.projects ?? []).map((each) => each.name);
  return [...new Set([...own, ...listed, "default"])].sort();
}

/** A field for one project; empty for all, if the page permits that. */
export function ProjectField({ usual }: { usual?: string }) {
  const projects = useProjects();
  return (
    <TextField
      label="Project"
      value={query.value.get("project") ?? usual ?? ""}
      options={projects}
      placeholder={usual === undefined ? "all" : ""}
      onInput={(project) => setQuery({ project })}
    />
  );
}
