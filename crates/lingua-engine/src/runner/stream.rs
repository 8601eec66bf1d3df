//! Audio that is still being spoken while the job runs.
//!
//! Start at [`Runner::find_streaming_node`]. A streaming node gets the job with its first audio and
//! the rest as it is spoken ([`Runner::send_speech`]); any other node gets the whole audio at its
//! end. When a node is lost, the next one gets the audio from its start.

use std::sync::Arc;

use lingua_core::SlotSet;
use lingua_core::job::JobEvent;
use lingua_store::Store;
use tokio::sync::mpsc::error::TrySendError;

use super::Runner;
use super::slot::{Found, NoSlot};
use crate::clock::Timer;
use crate::node::ToNode;
use crate::routes::AskedCells;
use crate::speech::Speech;

/// How much of the audio the streaming node of this attempt has got.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// The node of this attempt gets the audio as it is spoken.
    pub(super) is_on: bool,
    /// Bytes that were sent to it.
    sent: usize,
    /// When it was told that the audio is complete.
    pub(super) complete_ms: Option<u64>,
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// The job's audio, if it is still being spoken.
    pub(super) fn unfinished_speech(&self) -> Option<Arc<Speech>> {
        self.live.request.speech.clone().filter(|speech| !speech.is_complete())
    }

    /// Finds a slot on a streaming node; without one, waits until the speaker has finished.
    pub(super) async fn find_streaming_node(
        &mut self,
        speech: &Speech,
    ) -> Result<Option<Found>, NoSlot> {
        self.stream = StreamState { is_on: true, ..StreamState::default() };
        if let Some(found) = self.ask_streaming_nodes().await? {
            return Ok(Some(found));
        }
        self.stream = StreamState::default();
        while !speech.is_complete() {
            let message = tokio::select! {
                biased;
                message = self.live.next() => message,
                () = self.sleep_until(self.deadline_ms) => {
                    return Err(NoSlot::Interrupted(JobEvent::DeadlinePassed));
                }
            };
            self.on_message_while_waiting(message)?;
        }
        Ok(None)
    }

    /// Asks each cell once.
    async fn ask_streaming_nodes(&mut self) -> Result<Option<Found>, NoSlot> {
        if let Some(found) = self.ask_pinned_node().await? {
            return Ok(Some(found));
        }
        if self.is_strict() || self.prefers_whole_speech() {
            return Ok(None);
        }
        let tried: Vec<_> = self.machine.tried().to_vec();
        for served in self.spec.pair.lookups() {
            self.served = served;
            let mut asked = AskedCells::default();
            while let Some(cell) = self.next_cell(&mut asked, false) {
                let here = tried.iter().filter(|(c, _)| *c == cell).map(|(_, slot)| *slot);
                let exclude = here.collect::<SlotSet>() | self.excluded_in(cell).await?;
                if let Ok(found) = self.ask_cell(cell, exclude, true).await? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Sends a streaming node the audio that was spoken since.
    pub(super) async fn send_speech(&mut self) {
        let Some(speech) = self.live.request.speech.clone() else { return };
        if self.stream.complete_ms.is_some() {
            return;
        }
        let (key, at) = (self.key(), self.stream.sent);
        let (sound, is_complete) = speech.since(at);
        let bytes = at + sound.iter().map(bytes::Bytes::len).sum::<usize>();
        let sent = match (&self.connection, self.machine.grant()) {
            (Some(node), _) => {
                let sound = (!sound.is_empty()).then_some(ToNode::Sound { key, sound });
                let end = is_complete.then_some(ToNode::SoundEnd { key, bytes });
                sound.into_iter().chain(end).try_for_each(|message| node.outbox.try_send(message))
            }
            // If a part is lost on the way, the node finds the audio incomplete at its end and
            // fails the attempt.
            (None, Some(grant)) => {
                let total = is_complete.then_some(bytes);
                self.engine.send_audio_elsewhere(grant, key, at, &sound, total);
                Ok(())
            }
            (None, None) => return,
        };
        match (sent, &self.connection) {
            (Ok(()), _) => {
                self.stream.sent = bytes;
                self.stream.complete_ms = is_complete.then(|| self.engine.now_ms());
            }
            (Err(TrySendError::Full(_)), Some(node)) => {
                self.engine.disconnect_slow(&node.node, node.place().epoch).await;
            }
            // The node is gone, and a message about that is under way.
            (Err(_), _) => {}
        }
    }
}
