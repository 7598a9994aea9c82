/** A message of the server: commands in their own font, jobs as links. */

import { href } from "../../../state/router";
import { textParts } from "./message";

export function MessageText({ text }: { text: string }) {
  return (
    <>
      {textParts(text).map((part, index) => {
        const key = `${index}`;
        if (part.kind === "code") return <code key={key}>{part.text}</code>;
        if (part.kind === "text") return part.text;
        return (
          <a key={key} href={href(`jobs/${part.text}`)}>
            {part.text}
          </a>
        );
      })}
    </>
  );
}
