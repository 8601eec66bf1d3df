//! Audio that follows its message.

use lingua_sdk::{Failure, Output, Sound};
use lingua_wire::audio::Audio;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::bounded;
use crate::scheduler::{Said, Scheduler, fail, job};
use crate::worker::{options, start};

const RATE: Option<u32> = Some(16_000);

#[tokio::test]
async fn audio_goes_both_ways() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_audio(job(1), 1, Audio::in_next_frame("pcm16", RATE, 4)).await;
        // The answer does not wait for the audio.
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        peer.send(Frame::binary(vec![1, 2, 3, 4])).await;
        let work = node.work().await;
        assert_eq!(work.job.audio, Some(Sound::pcm16(16_000, vec![1, 2, 3, 4])));
        work.end(Ok(Output::default().with_speech(Sound::pcm16(8000, vec![5, 6]))));
        let (result, audio) = peer.done(job(1)).await;
        assert_eq!(result, r#"{"tts_audio":{"format":"pcm16","sample_rate":8000,"bytes":2}}"#);
        assert_eq!(audio, Some(vec![5, 6]));
    })
    .await;
}

#[tokio::test]
async fn audio_inside_the_message_is_the_same_to_the_handler() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_audio(job(1), 1, Audio::inline("pcm16", RATE, &[1, 2])).await;
        let work = node.work().await;
        assert_eq!(work.job.audio, Some(Sound::pcm16(16_000, vec![1, 2])));
    })
    .await;
}

#[tokio::test]
async fn audio_that_is_not_as_announced_fails_the_job_and_nothing_else() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_audio(job(1), 1, Audio::in_next_frame("pcm16", RATE, 4)).await;
        peer.send(Frame::binary(vec![1])).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        assert_eq!(peer.next().await, fail(job(1), Failure::BAD_AUDIO));
        peer.assign_audio(job(2), 2, Audio::in_next_frame("pcm16", RATE, 4)).await;
        peer.assign(job(3), 3).await;
        assert_eq!(peer.next().await, Said::Ack(job(2)));
        assert_eq!(peer.next().await, fail(job(2), Failure::BAD_AUDIO));
        assert_eq!(peer.next().await, Said::Ack(job(3)));
        assert_eq!(node.work().await.job.job_id, job(3).job_id);
    })
    .await;
}

#[tokio::test]
async fn audio_of_a_refused_job_is_passed_over() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler).slots(1));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign(job(1), 1).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        peer.assign_audio(job(2), 2, Audio::in_next_frame("pcm16", RATE, 2)).await;
        peer.send(Frame::binary(vec![9, 9])).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        node.work().await.end(Ok(Output::default()));
        assert_eq!(peer.done(job(1)).await.0, "{}");
        peer.assign_audio(job(3), 3, Audio::in_next_frame("pcm16", RATE, 2)).await;
        peer.send(Frame::binary(vec![7, 7])).await;
        let sound = node.work().await.job.audio.unwrap();
        assert_eq!(&sound.bytes[..], [7, 7]);
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_audio_is_lost_with_the_connection_gives_its_slot_back() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let node = start(options(&scheduler).slots(1));
        let mut peer = scheduler.accept_registered(1).await;
        peer.assign_audio(job(1), 1, Audio::in_next_frame("pcm16", RATE, 4)).await;
        assert_eq!(peer.next().await, Said::Ack(job(1)));
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign(job(2), 2).await;
        assert_eq!(peer.next().await, Said::Ack(job(2)));
        assert_eq!(node.stats.most_at_once(), 1);
    })
    .await;
}
