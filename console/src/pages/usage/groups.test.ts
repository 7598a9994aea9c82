import { expect, test } from "vitest";
import { groupsOf, groupText, hoursText, moneyText, usageQuery } from "./groups";

test("groups of an address keep their order, and unknown ones are left out", () => {
  expect(groupsOf("user,project")).toEqual(["user", "project"]);
  expect(groupsOf("team,user,user")).toEqual(["user"]);
  expect(groupsOf(null)).toEqual(["project"]);
});

test("a request has only the parameters that are set", () => {
  const open = { name: "month", from_s: 10, to_s: undefined } as const;
  expect(usageQuery(["project", "user"], open, "")).toEqual({ group_by: "project,user", from: 10 });
  expect(usageQuery(["job"], { ...open, to_s: 20 }, "vision")).toEqual({
    group_by: "job",
    from: 10,
    to: 20,
    project: "vision",
  });
});

test("amounts have two decimals", () => {
  expect(moneyText(1234567.891, "EUR")).toBe("1 234 567.89 EUR");
  expect(moneyText(null, "EUR")).toBe("–");
  expect(hoursText(4)).toBe("4.00");
  const row = { project: "p", user: null, accelerator: "H100", job: "j_1", job_name: "gpt" };
  const texts = (["project", "user", "class", "job"] as const).map((group) => groupText(row as never, group));
  expect(texts).toEqual(["p", "–", "H100", "gpt"]);
});
