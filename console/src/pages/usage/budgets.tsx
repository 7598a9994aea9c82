/** The budgets of projects: how much is used, and what happens at the end. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { Badge, type Tone } from "../../components/badge";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { useResource } from "../../state/resource";
import { href } from "../../state/router";
import { percentText } from "../../text/numbers";
import { dayText } from "../../text/time";
import { hoursText } from "./groups";

type Project = Schema<"Project">;

const NEAR = 0.8;

export function Budgets() {
  const projects = useResource((signal) => get("/v1/projects", { signal }), []);
  return (
    <section class="card" aria-labelledby="budgets">
      <h2 id="budgets">Budgets</h2>
      <ResourceView resource={projects} label="Loading the budgets">
        {(data) => <BudgetTable projects={data.projects.filter((each) => each.budget)} />}
      </ResourceView>
    </section>
  );
}

function BudgetTable({ projects }: { projects: readonly Project[] }) {
  if (projects.length === 0) {
    return (
      <p class="quiet">
        No project has a budget. <a href={href("queue")}>Queue and projects</a> sets one; jobs are suspended when it is
        used up.
      </p>
    );
  }
  return (
    <ShortTable
      label="Budgets of projects"
      rows={projects}
      rowKey={(project) => project.name}
      columns={[
        { id: "name", label: "Project", cell: (project) => project.name },
        { id: "state", label: "State", cell: (project) => <BudgetState project={project} /> },
        { id: "bar", label: "Used", cell: (project) => <UsedBar share={shareOf(project)} /> },
        { id: "share", label: "Share", isNumber: true, cell: (project) => percentText(shareOf(project)) },
        { id: "used", label: "Used", isNumber: true, cell: (project) => amountText(project, project.budget_used) },
        { id: "size", label: "Budget", isNumber: true, cell: (project) => amountText(project, sizeOf(project)) },
        { id: "since", label: "Since", cell: (project) => sinceText(project) },
      ]}
    />
  );
}

function BudgetState({ project }: { project: Project }) {
  const share = shareOf(project);
  const [tone, text]: [Tone, string] =
    share >= 1
      ? ["bad", "Used up: jobs are suspended"]
      : share >= NEAR
        ? ["warning", "Nearly used up"]
        : ["good", "In budget"];
  return <Badge tone={tone}>{text}</Badge>;
}

function UsedBar({ share }: { share: number }) {
  const width = Math.min(100, 100 * share);
  return (
    <svg class="usage-bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
      <rect class={share >= 1 ? "usage-full" : share >= NEAR ? "usage-near" : "usage-part"} width={width} height="4" />
    </svg>
  );
}

function sizeOf(project: Project): number {
  return project.budget?.device_hours ?? project.budget?.cost ?? 0;
}

function shareOf(project: Project): number {
  const size = sizeOf(project);
  return size === 0 ? 1 : (project.budget_used ?? 0) / size;
}

function amountText(project: Project, value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return project.budget?.device_hours == null ? hoursText(value) : `${hoursText(value)} h`;
}

function sinceText(project: Project): string {
  const since = project.budget?.since;
  return since ? dayText(since) : "the beginning";
}
