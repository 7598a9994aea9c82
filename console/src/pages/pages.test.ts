import { expect, test } from "vitest";
import { findPage, matchPath, PAGES } from ".";

test("an address finds its page with its values", () => {
  const { page, values } = findPage("jobs/j_1/logs");
  expect(page.pattern).toBe("jobs/:job/:tab");
  expect(values).toEqual({ job: "j_1", tab: "logs" });
  expect(findPage("").page.nav?.label).toBe("Overview");
  expect(findPage("no/such").page.pattern).toBe("*");
});

test("a value is decoded", () => {
  expect(matchPath("jobs/:job", "jobs/a%2Fb")).toEqual({ job: "a/b" });
});

test("each page of the navigation has a key of its own", () => {
  const keys = PAGES.flatMap((page) => (page.nav ? [page.nav.key] : []));
  expect(new Set(keys).size).toBe(keys.length);
});

test("each page can be loaded", async () => {
  for (const page of PAGES) expect((await page.load()).default).toBeTypeOf("function");
});
