/**
 * Reads server-sent events.
 *
 * Start at {@link readServerEvents}. Invariant: what is kept of an unfinished event is bounded.
 */

import { LinguaError } from "./error.js";
import type { ServerEvents } from "./wire.js";

/** Longest event. */
const EVENT_CHARACTERS_MAX = 4 << 20;

/** An event with its name: `node`, `job`, `pool` or `leader`. */
export type ServerEvent = {
  [Name in keyof ServerEvents]: { event: Name; data: ServerEvents[Name] };
}[keyof ServerEvents];

/** The events of a body; comments and events without a name are left out. */
export async function* readServerEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerEvent, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      text += decoder.decode(value, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop() ?? "";
      if (text.length > EVENT_CHARACTERS_MAX) {
        throw new LinguaError("BAD_ANSWER", "an event is longer than 4 MiB");
      }
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) {
          yield event;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function parseEvent(block: string): ServerEvent | undefined {
  const fields = block.split("\n").map((line) => /^(event|data): ?(.*)$/.exec(line));
  const value = (name: string) =>
    fields.filter((field) => field?.[1] === name).map((field) => field?.[2]);
  const [event] = value("event");
  if (event === undefined) {
    return undefined;
  }
  return { event, data: JSON.parse(value("data").join("\n")) } as ServerEvent;
}
