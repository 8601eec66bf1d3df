//! Jobs whose speaker is still speaking.
//!
//! Start at [`Runner::listen_along`]. A node that listens along gets the job with its first sound, and the rest as it is
//! said ([`Runner::feed`]); any other gets the whole at its end. When a node is lost, the next one is given all that was
//! said from the start.

use std::sync::Arc;

use lingua_core::SlotSet;
use lingua_core::job::JobEvent;
use lingua_store::Store;
use lingua_store::contract::{LeaseKey, ReserveOutcome};
use tokio::sync::mpsc::error::TrySendError;

use super::Runner;
use super::slot::{Found, NoSlot};
use crate::clock::Timer;
use crate::live::Heard;
use crate::node::ToNode;
use crate::speech::Speech;

/// How a node that listens along is fed.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The node of this attempt listens along.
    pub(super) is_on: bool,
    /// How much of the sound it has been told.
    told: usize,
    /// It was told that there is no more.
    is_over: bool,
}

impl Feed {
    pub(super) fn listening() -> Self {
        Self { is_on: true, ..Self::default() }
    }
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// What is being said, if the job has that and it is not whole.
    pub(super) fn unfinished(&self) -> Option<Arc<Speech>> {
        self.live.request.speech.clone().filter(|speech| !speech.is_whole())
    }

    /// Looks for a node that listens along; without one, waits until the speaker has finished.
    pub(super) async fn listen_along(&mut self, speech: &Speech) -> Result<Option<Found>, NoSlot> {
        self.feed = Feed::listening();
        if let Some(found) = self.look_for_listener().await? {
            return Ok(Some(found));
        }
        self.feed = Feed::default();
        while !speech.is_whole() {
            let heard = tokio::select! {
                biased;
                heard = self.live.next() => heard,
                () = self.alarm.at(&self.shared.timer, self.deadline_ms) => {
                    return Err(NoSlot::Interrupted(JobEvent::DeadlinePassed));
                }
            };
            if let Heard::Word(word) = heard
                && let Some(event) = self.while_waiting(word)
            {
                return Err(NoSlot::Interrupted(event));
            }
        }
        Ok(None)
    }

    /// Asks each cell once. What it finds says nothing about other jobs of this pair, so nothing is noted.
    async fn look_for_listener(&mut self) -> Result<Option<Found>, NoSlot> {
        if self.spec.bind_key.is_some()
            && let Some(found) = self.look_at_pinned().await?
        {
            return Ok(Some(found));
        }
        let tried: Vec<_> = self.job.tried().to_vec();
        let cells = self.shared.routes.order(self.spec.pair, self.shared.random(), false);
        for cell in cells {
            let here = tried.iter().filter(|(c, _)| *c == cell).map(|(_, slot)| *slot);
            let exclude = here.collect::<SlotSet>() | self.excluded_in(cell).await?;
            match self.reserve(cell, exclude, None, true).await? {
                ReserveOutcome::Granted { grant, used, free, .. } => {
                    return Ok(Some(Found { grant, used, free }));
                }
                ReserveOutcome::Duplicate(grant) => {
                    return Ok(Some(Found { grant, used: 1, free: 0 }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Tells a node that listens along what was said since.
    pub(super) async fn feed(&mut self) {
        let Some(speech) = self.live.request.speech.clone() else { return };
        if self.feed.is_over {
            return;
        }
        let key = self.key();
        let Some(link) = self.link.clone() else { return self.feed_elsewhere(&speech) };
        let (sound, is_whole) = speech.since(self.feed.told);
        let bytes = self.feed.told + sound.len();
        let LeaseKey { job, attempt } = key;
        let sound = match sound.is_empty() {
            true => Ok(()),
            false => link.outbox.try_send(ToNode::Sound { key: LeaseKey { job, attempt }, sound }),
        };
        let told = match (sound, is_whole) {
            (Ok(()), true) => link.outbox.try_send(ToNode::SoundEnd { key, bytes }),
            (told, _) => told,
        };
        match told {
            Ok(()) => (self.feed.told, self.feed.is_over) = (bytes, is_whole),
            Err(TrySendError::Full(_)) => {
                self.shared.disconnect_slow(&link.node, link.place.epoch).await;
            }
            // It is gone, and the job is being told so.
            Err(TrySendError::Closed(_)) => {}
        }
    }

    /// The same for a node of another instance. What does not get through is missing at the end, and the node says so.
    fn feed_elsewhere(&mut self, speech: &Speech) {
        let Some(grant) = self.job.grant().cloned() else { return };
        let key = self.key();
        let (sound, is_whole) = speech.since(self.feed.told);
        let bytes = self.feed.told + sound.len();
        if !sound.is_empty() {
            self.shared.send_audio_elsewhere(&grant, key, self.feed.told, sound);
        }
        if is_whole {
            self.shared.send_audio_end_elsewhere(&grant, key, bytes);
        }
        (self.feed.told, self.feed.is_over) = (bytes, is_whole);
    }
}
