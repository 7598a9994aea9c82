/** The files of a checkpoint, and how to copy them and load them elsewhere. */

import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { Dialog } from "../../../components/dialog";
import { ResourceView } from "../../../components/resource-view";
import { ScrollBox } from "../../../components/scroll-box";
import { useResource } from "../../../state/resource";
import { bytesText, countText } from "../../../text/numbers";
import { useJob } from "../job-context";

const MOST_LISTED = 200;

export function ExportDialog(props: { checkpoint: Schema<"Checkpoint">; onClose: () => void }) {
  const { job } = useJob();
  const { step } = props.checkpoint;
  const files = useResource(
    (signal) => get("/v1/jobs/{job}/checkpoints/{step}/files", { path: { job: job.id, step }, signal }),
    [job.id, step],
  );
  return (
    <Dialog title={`Export step ${step}`} onClose={props.onClose} isWide>
      <ResourceView resource={files} label="Reading the manifest">
        {(found) => (
          <>
            <p>
              <code>{found.checkpoint.uri}</code>
              <br />
              {countText(found.files.length, "file")}, {bytesText(found.size_bytes)}, in the format of
              torch.distributed.checkpoint
            </p>
            <Copied label="Parameters as one safetensors file" text={found.export_command} />
            <Copied label="Copy the folder" text={found.copy_command} />
            <Copied label="Load it without regroup" text={found.load_code} />
            <details>
              <summary>Files</summary>
              <ScrollBox label="Files">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Name</th>
                      <th scope="col" class="number">
                        Size
                      </th>
                      <th scope="col">CRC-32</th>
                    </tr>
                  </thead>
                  <tbody>
                    {found.files.slice(0, MOST_LISTED).map((file) => (
                      <tr key={file.name}>
                        <td>{file.name}</td>
                        <td class="number">{bytesText(file.size_bytes)}</td>
                        <td>
                          <code>{file.crc32.toString(16).padStart(8, "0")}</code>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </ScrollBox>
              {found.files.length > MOST_LISTED && <p>and {found.files.length - MOST_LISTED} more</p>}
            </details>
          </>
        )}
      </ResourceView>
    </Dialog>
  );
}

function Copied({ label, text }: { label: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <figure class="data-copied">
      <figcaption>
        {label}
        <button type="button" class="link" aria-label={`Copy: ${label}`} onClick={() => void copy()}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide command scrolls with the keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </figure>
  );
}
