//! Audio that follows its message.

use lingua_sdk::{Failure, Output, Sound};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::bounded;
use crate::scheduler::{Report, Scheduler, fail, job, tagged};
use crate::worker::{connected, options, start};

/// Audio that follows in the next binary frame.
fn in_next_frame(bytes: usize) -> Value {
    json!({"format": "pcm16", "sample_rate": 16_000, "bytes": bytes})
}

#[tokio::test]
async fn audio_goes_both_ways() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_audio(job(1), 1, in_next_frame(4)).await;
        // The acknowledgement does not wait for the audio.
        assert_eq!(peer.next().await, Report::Ack(job(1)));
        peer.send_frame(Frame::binary(vec![1, 2, 3, 4])).await;
        let work = node.work().await;
        assert_eq!(work.job.audio, Some(Sound::pcm16(16_000, vec![1, 2, 3, 4])));
        work.end(Ok(Output::default().with_speech(Sound::pcm16(8000, vec![5, 6]))));
        let (result, audio) = peer.done(job(1)).await;
        let announced = json!({"format": "pcm16", "sample_rate": 8000, "bytes": 2});
        assert_eq!(result, json!({"tts_audio": announced}));
        assert_eq!(audio, Some(vec![5, 6]));
    })
    .await;
}

#[tokio::test]
async fn audio_inside_the_message_is_the_same_to_the_handler() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_audio(
            job(1),
            1,
            json!({"format": "pcm16", "sample_rate": 16_000, "data": "AQI="}),
        )
        .await;
        let work = node.work().await;
        assert_eq!(work.job.audio, Some(Sound::pcm16(16_000, vec![1, 2])));
    })
    .await;
}

#[tokio::test]
async fn audio_that_differs_from_its_announcement_fails_only_its_job() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign_audio(job(1), 1, in_next_frame(4)).await;
        peer.send_frame(Frame::binary(vec![1])).await;
        assert_eq!(peer.next().await, Report::Ack(job(1)));
        assert_eq!(peer.next().await, fail(job(1), Failure::BAD_AUDIO));
        peer.assign_audio(job(2), 2, in_next_frame(4)).await;
        peer.assign(job(3), 3).await;
        assert_eq!(peer.next().await, Report::Ack(job(2)));
        assert_eq!(peer.next().await, fail(job(2), Failure::BAD_AUDIO));
        assert_eq!(peer.next().await, Report::Ack(job(3)));
        assert_eq!(node.work().await.job.job_id, job(3).job_id);
    })
    .await;
}

#[tokio::test]
async fn audio_of_a_refused_job_is_ignored() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options.slots(1)).await;
        peer.assign_acked(job(1), 1).await;
        peer.assign_audio(job(2), 2, in_next_frame(2)).await;
        peer.send_frame(Frame::binary(vec![9, 9])).await;
        assert_eq!(peer.next().await, fail(job(2), "BUSY"));
        node.work().await.end(Ok(Output::default()));
        assert_eq!(peer.done(job(1)).await.0, json!({}));
        peer.assign_audio(job(3), 3, in_next_frame(2)).await;
        peer.send_frame(Frame::binary(vec![7, 7])).await;
        let sound = node.work().await.job.audio.unwrap();
        assert_eq!(&sound.bytes[..], [7, 7]);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_loses_its_audio_with_the_connection_frees_its_slot() {
    bounded(async {
        let (scheduler, node, mut peer) = connected(|options| options.slots(1)).await;
        peer.assign_audio(job(1), 1, in_next_frame(4)).await;
        assert_eq!(peer.next().await, Report::Ack(job(1)));
        drop(peer);
        let mut peer = scheduler.accept_registered(2).await;
        peer.assign_acked(job(2), 2).await;
        assert_eq!(node.stats.most_at_once(), 1);
    })
    .await;
}

#[tokio::test]
async fn streamed_audio_reaches_the_handler_while_it_is_spoken() {
    bounded(async {
        let scheduler = Scheduler::start().await;
        let mut node = start(options(&scheduler).streaming(true));
        let mut peer = scheduler.accept().await;
        assert_eq!(peer.register(1, 60_000).await["streaming"], true);
        let stream = json!({"format": "pcm16", "sample_rate": 16_000, "stream": true});
        for number in 1..=2 {
            peer.assign_audio(job(number), number as u64, stream.clone()).await;
            assert_eq!(peer.next().await, Report::Ack(job(number)));
        }
        let (first, second) = (node.work().await.job, node.work().await.job);
        let (first, second) = (first.stream.unwrap(), second.stream.unwrap());
        // Frames of two jobs take turns; each reaches its own handler before the end is known.
        for (number, piece) in [(1, b"ab"), (2, b"xy"), (1, b"cd")] {
            peer.send_frame(tagged(job(number), piece)).await;
        }
        assert_eq!(first.next().await.unwrap(), &b"ab"[..]);
        assert_eq!(first.next().await.unwrap(), &b"cd"[..]);
        assert_eq!(second.next().await.unwrap(), &b"xy"[..]);
        peer.audio_end(job(1), 4).await;
        assert_eq!((first.next().await, first.is_whole()), (None, true));
        // More bytes were announced than arrived.
        peer.audio_end(job(2), 3).await;
        assert_eq!((second.next().await, second.is_whole()), (None, false));
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_cancels_its_job() {
    bounded(async {
        let (_scheduler, mut node, mut peer) = connected(|options| options.streaming(true)).await;
        peer.assign_audio(job(1), 1, json!({"format": "opus_packets", "stream": true})).await;
        let work = node.work().await;
        peer.send_frame(tagged(job(1), b"ab")).await;
        drop(peer);
        work.context.cancelled().await;
        let stream = work.job.stream.clone().unwrap();
        while stream.next().await.is_some() {}
        assert!(!stream.is_whole());
    })
    .await;
}

#[tokio::test]
async fn an_unconfirmed_result_is_sent_again_with_its_audio() {
    bounded(async {
        let (scheduler, mut node, mut peer) = connected(|options| options).await;
        peer.assign(job(1), 1).await;
        let speech = Sound::pcm16(8000, vec![5, 6]);
        node.work().await.end(Ok(Output::default().with_speech(speech)));
        assert_eq!(peer.next().await, Report::Ack(job(1)));
        let first = peer.done(job(1)).await;
        assert_eq!(first.1, Some(vec![5, 6]));
        drop(peer);
        assert_eq!(scheduler.accept_registered(2).await.done(job(1)).await, first);
    })
    .await;
}
