/**
 * What a session has to send, and what it may have to send again.
 *
 * Start at {@link Outbox.take} and {@link Outbox.resume}. A turn that was opened with `turn_start`,
 * or that is a text, is kept until a later turn has arrived. After a broken connection the
 * scheduler tells how many turns it has seen and how much of the open one; what it lacks is sent
 * again, and nothing else. Audio outside such turns is sent once.
 *
 * Invariants: what is kept is bounded in bytes. Audio is sent in the order in which it was spoken.
 */

import type { AudioFormat, SessionStarted } from "./wire.js";

/** Most bytes of audio that are kept or wait: four minutes at 16 kHz. */
const KEPT_BYTES_MAX = 8 << 20;

/** Longer audio is cut into frames of this length. */
const FRAME_MS = 100;

/** The length of an Opus packet, for the rate; most have it. */
const OPUS_PACKET_US = 20_000;

/** A message or a frame of audio. */
interface Item {
  frame: string | Uint8Array;
  /** Playing time in microseconds; 0 for messages. */
  us: number;
}

/** Items that belong together: a turn, or what is sent outside of turns. */
interface Turn {
  items: Item[];
  /** How many of the items were sent over this connection. */
  sent: number;
  /** As the scheduler counts; undefined outside of turns. */
  number: number | undefined;
  speaker: string | undefined;
  /** Whether nothing will be added to it. */
  isOver: boolean;
  /** Playing time of old audio that is no longer kept. */
  forgottenUs: number;
}

/** Frames and messages in the order in which they are sent. */
export class Outbox {
  /** Undefined for Opus. */
  readonly #bytesPerSecond: number | undefined;
  #turns: Turn[] = [];
  /** The number of the last turn, as the scheduler counts. */
  #number = 0;

  constructor(audio: AudioFormat | null | undefined) {
    const isPcm = (audio?.format ?? "pcm16") === "pcm16";
    this.#bytesPerSecond = isPcm ? 2 * (audio?.sample_rate ?? 16_000) : undefined;
  }

  /** Opens a turn. */
  turnStart(speaker?: string): void {
    this.#open(turnStartMessage(speaker), speaker);
  }

  /** Adds a turn of text, which ends an open one. */
  text(text: string, speaker?: string): void {
    const turn = this.#open(JSON.stringify({ type: "text", text, speaker }), speaker);
    turn.isOver = true;
  }

  /** Ends the turn. */
  turnEnd(): void {
    const turn = this.#current();
    turn.items.push({ frame: JSON.stringify({ type: "turn_end" }), us: 0 });
    turn.isOver = true;
  }

  /** Adds a copy of the audio; false if there is no room for it. */
  audio(bytes: Uint8Array): boolean {
    if (!this.#makeRoom(bytes.length)) {
      return false;
    }
    const turn = this.#current();
    const perSecond = this.#bytesPerSecond;
    const step = perSecond ? (perSecond * FRAME_MS) / 1000 : bytes.length;
    for (let at = 0; at < bytes.length; at += step) {
      const frame = bytes.slice(at, at + step);
      // The scheduler measures it so, too.
      const us = perSecond ? Math.floor((frame.length * 1_000_000) / perSecond) : OPUS_PACKET_US;
      turn.items.push({ frame, us });
    }
    return true;
  }

  /** Playing time of the audio that waits to be sent, in milliseconds. */
  get unsentMs(): number {
    const us = (turn: Turn) => sum(turn.items.slice(turn.sent), (item) => item.us);
    return sum(this.#turns, us) / 1000;
  }

  /** The next item to send. */
  peek(): Item | undefined {
    const turn = this.#turns.find(hasUnsent);
    return turn?.items[turn.sent];
  }

  /** Takes the item that {@link peek} shows. */
  take(): void {
    const turn = this.#turns.find(hasUnsent);
    if (!turn) {
      return;
    }
    turn.sent += 1;
    if (turn.number === undefined) {
      // Nobody tells how much of it arrives.
      turn.items.splice(0, turn.sent);
      turn.sent = 0;
    }
  }

  /** The scheduler speaks of this turn, so those before it have arrived. */
  arrived(number: number): void {
    // Speech outside of turns opens turns as well, which only the scheduler can count.
    if (number > this.#number && !this.#turns.some(hasUnsent)) {
      this.#number = number;
    }
    this.#turns = this.#turns.filter((turn) => hasUnsent(turn) || (turn.number ?? 0) >= number);
  }

  /** Prepares for a new connection: sends what the scheduler lacks. */
  resume(started: SessionStarted): void {
    const seen = started.turns ?? this.#number;
    const open = started.turn_open ? seen : undefined;
    for (const turn of this.#turns) {
      if (turn.number === undefined) {
        continue;
      }
      if (turn.number > seen) {
        turn.sent = 0;
      } else if (turn.number === open) {
        turn.sent = this.#arrivedItems(turn, started.received_ms ?? 0);
      } else {
        goOnAsAnother(turn);
      }
    }
    this.#turns = this.#turns.filter((turn) => hasUnsent(turn) || !turn.isOver);
    this.#number = seen;
    for (const turn of this.#turns) {
      if (turn.number !== undefined && turn.number !== open) {
        this.#number += 1;
        turn.number = this.#number;
      }
    }
  }

  /** How many items of the open turn the scheduler has. */
  #arrivedItems(turn: Turn, receivedMs: number): number {
    if (this.#bytesPerSecond === undefined) {
      return turn.sent;
    }
    let us = turn.forgottenUs;
    const lacking = turn.items.findIndex((item, at) => {
      us += item.us;
      const isOpening = at === 0 && item.us === 0;
      return !isOpening && (item.us === 0 || Math.floor(us / 1000) > receivedMs);
    });
    return lacking < 0 ? turn.items.length : lacking;
  }

  #open(message: string, speaker: string | undefined): Turn {
    const last = this.#turns.at(-1);
    if (last) {
      last.isOver = true;
    }
    this.#number += 1;
    const turn = newTurn(this.#number, speaker);
    turn.items.push({ frame: message, us: 0 });
    this.#turns.push(turn);
    return turn;
  }

  /** The turn that takes what comes. */
  #current(): Turn {
    const last = this.#turns.at(-1);
    if (last && !last.isOver) {
      return last;
    }
    const turn = newTurn(undefined, undefined);
    this.#turns.push(turn);
    return turn;
  }

  /** Forgets the oldest audio that was sent, if there is need; false if that is not enough. */
  #makeRoom(bytes: number): boolean {
    const kept = (turn: Turn) => sum(turn.items, (item) => (item.us > 0 ? item.frame.length : 0));
    let excess = sum(this.#turns, kept) + bytes - KEPT_BYTES_MAX;
    for (const turn of this.#turns) {
      let at = 0;
      while (excess > 0 && at < turn.sent) {
        const item = turn.items[at];
        if (!item || item.us === 0) {
          at += 1;
          continue;
        }
        turn.items.splice(at, 1);
        turn.sent -= 1;
        turn.forgottenUs += item.us;
        excess -= item.frame.length;
      }
    }
    return excess <= 0;
  }
}

function newTurn(number: number | undefined, speaker: string | undefined): Turn {
  return { items: [], sent: 0, number, speaker, isOver: false, forgottenUs: 0 };
}

/** A turn is over at the scheduler: what was not sent of it becomes another turn. */
function goOnAsAnother(turn: Turn): void {
  const unsent = turn.items.slice(turn.sent);
  const isLost = !turn.isOver || unsent.some((item) => item.us > 0);
  turn.items = isLost ? [{ frame: turnStartMessage(turn.speaker), us: 0 }, ...unsent] : [];
  turn.sent = 0;
  turn.forgottenUs = 0;
}

function turnStartMessage(speaker: string | undefined): string {
  return JSON.stringify({ type: "turn_start", speaker });
}

function hasUnsent(turn: Turn): boolean {
  return turn.sent < turn.items.length;
}

function sum<T>(list: T[], value: (item: T) => number): number {
  return list.reduce((total, item) => total + value(item), 0);
}
