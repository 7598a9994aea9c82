import { expect, test } from "vitest";
import { commandOf, requestOf, scenarioOf, toggled } from "./scenario";

const of = (query: string) => scenarioOf(new URLSearchParams(query));

test("the address is a request", () => {
  const found = of("add=8&like=n1&drain=rack:a+n7&quota=vision.limit%3D64+vision.weight%3D2&assumed=2h&horizon=1d");
  expect(requestOf(found)).toEqual({
    add_nodes: { count: 8, like: "n1" },
    drain: ["rack:a", "n7"],
    cancel: [],
    quotas: { vision: { limit: 64, weight: 2 } },
    add_jobs: [],
    assumed_s: 7200,
    horizon_s: 86_400,
  });
  expect(commandOf(found)).toBe(
    "regroup what-if --add-nodes 8 --like n1 --drain rack:a --drain n7 --quota vision.limit=64 " +
      "--quota vision.weight=2 --assumed 2h --horizon 1d",
  );
});

test("an added job has numbers", () => {
  expect(requestOf(of("job=name%3Dbig,ranks%3D64,duration_s%3D60"))).toMatchObject({
    add_jobs: [{ name: "big", ranks: 64, duration_s: 60 }],
  });
});

test.each(["quota=vision", "quota=vision.max%3D1", "job=big", "assumed=soon"])(
  "%s is refused with an example",
  (query) => expect(requestOf(of(query))).toMatch(/write for example/),
);

test("a word is added, and removed again", () => {
  expect(toggled("a b", "c")).toBe("a b c");
  expect(toggled("a b", "a")).toBe("b");
});
