/**
 * What pages need besides a session: a microphone and a way to play speech.
 *
 * Start at {@link Microphone.open} and {@link Player.play}.
 */

export { Microphone, type MicrophoneOptions, type SpeechSink } from "./microphone.js";
export { Player, type Speech } from "./player.js";
