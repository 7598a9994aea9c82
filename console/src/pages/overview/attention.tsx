/** What needs a person, the most urgent first, with the remedy and a link to where it is done. */

import type { Schema } from "../../api/types";
import { Badge, type Tone } from "../../components/badge";
import { href } from "../../state/router";
import { countText } from "../../text/numbers";

type Item = Schema<"AttentionItem">;

const LABELS: Record<string, readonly [Tone, string]> = {
  cluster_silent: ["bad", "cluster"],
  job_held: ["bad", "job holds nodes"],
  platform_fault: ["bad", "server fault"],
  node_quarantined: ["bad", "node"],
  node_unreachable: ["bad", "node"],
  budget_used: ["warning", "budget"],
  job_unplaceable: ["warning", "cannot start"],
  node_unwell: ["warning", "node"],
  slow_rank: ["warning", "slow rank"],
  low_utilization: ["warning", "low use"],
  hook_failing: ["warning", "hook"],
};

export function AttentionList({ items, total }: { items: readonly Item[]; total: number }) {
  if (items.length === 0) return <p class="notice good">Nothing needs you now.</p>;
  return (
    <section aria-labelledby="overview-attention">
      <h2 id="overview-attention">{countText(total, "thing needs", "things need")} you</h2>
      <ul class="overview-attention card">
        {items.map((item) => {
          const [tone, label] = LABELS[item.kind] ?? ["warning", item.kind.replaceAll("_", " ")];
          const action = actionOf(item);
          return (
            <li key={`${item.kind} ${item.job ?? item.node ?? item.hook ?? item.cluster}`}>
              <Badge tone={tone}>{label}</Badge>
              <div>
                <p>{item.message}</p>
                <p class="quiet">{item.remedy}</p>
              </div>
              {action && (
                <a class="button" href={action.href}>
                  {action.label}
                </a>
              )}
            </li>
          );
        })}
      </ul>
      {total > items.length && <p class="quiet">{countText(total - items.length, "more is", "more are")} not shown.</p>}
    </section>
  );
}

function actionOf(item: Item): { label: string; href: string } | undefined {
  const job = item.job ?? undefined;
  if (item.kind === "job_held" && job)
    return { label: "Release nodes", href: href(`jobs/${job}`, { action: "release" }) };
  if (item.kind === "slow_rank" && job) return { label: "Show ranks", href: href(`jobs/${job}/ranks`) };
  if (item.kind === "budget_used" && item.project) return { label: "Show budgets", href: href("usage") };
  if (job) return { label: "Show why", href: href(`jobs/${job}/why`) };
  if (item.node) return { label: "Show node", href: href("cluster", { select: `node:${item.node}` }) };
  if (item.cluster) return { label: "Show clusters", href: href("cluster") };
  if (item.hook) return { label: "Show hook", href: href("admin/hooks", { project: item.project ?? undefined }) };
  return undefined;
}
