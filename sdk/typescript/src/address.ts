/** Addresses of schedulers. */

import { LinguaError } from "./error.js";

/** Reads an address; its protocol has to be one of these. */
export function parseAddress(given: string | URL, protocols: string[]): URL {
  let url: URL | undefined;
  try {
    url = new URL(given);
  } catch {
    // Told below.
  }
  if (!url || !protocols.includes(url.protocol) || url.search !== "") {
    const detail = `${given} cannot be used; give an address like https://lingua.example`;
    throw new LinguaError("BAD_OPTION", detail);
  }
  return url;
}
