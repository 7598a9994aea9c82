/** Where the console and the API are, as seen from the page. A proxy may put both below a prefix. */

/** Address of the console, with a final slash: the `<base>` of the page. */
export function consoleUrl(): URL {
  return new URL(document.baseURI);
}

/** Address of the server, with a final slash: the folder that contains the console. */
export function serverUrl(): URL {
  return new URL("..", consoleUrl());
}

/** Return the address of a path of the API, for example `/v1/jobs`. */
export function apiUrl(path: string): URL {
  return new URL(path.replace(/^\//, ""), serverUrl());
}
