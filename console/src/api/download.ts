/** Files that the API makes, saved by the browser. */

import { fetchApi } from "./client";

/** Get a path of the API, and save the answer as a file. */
export async function saveAnswer(path: string, name: string): Promise<void> {
  const response = await fetchApi(path);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
