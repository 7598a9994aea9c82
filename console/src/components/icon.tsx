/** Icons, 16 by 16, of lines. They decorate: the text beside them carries the meaning. */

const PATHS = {
  overview: "M2 8.5 8 3l6 5.5M4 7.5V13h8V7.5",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  submit: "M8 12.5v-9M4.5 7 8 3.5 11.5 7M3 14h10",
  cluster: "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
  queue: "M2.5 12.5v-9M6.2 12.5v-6M9.8 12.5v-8M13.5 12.5v-4",
  whatIf: "M3 13V3M3 13h10.5M5.5 10l3-3 2 2 3-4.5",
  reliability: "M8 2.5 13 4.5V8c0 3-2.2 4.8-5 5.5C5.2 12.8 3 11 3 8V4.5z",
  usage: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5H8z",
  admin: "M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8zM3 13.5c.4-2.6 2.3-4 5-4s4.6 1.4 5 4",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3.5 3.5",
  external: "M9 3h4v4M13 3 7.5 8.5M11 9.5V13H3V5h3.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
