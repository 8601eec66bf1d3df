//! `lingua say`, with a simulated streaming node.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::scheduler::{Scheduler, binary, run, within};

#[tokio::test]
async fn a_wav_file_is_translated_and_the_speech_saved() {
    let s = Scheduler::start().await;
    let url = format!("http://{}", s.address);
    let mut node = Command::new(binary());
    node.args(["node", "--url", &url, "--asr", "en", "--semantic", "en", "--tts", "es"]);
    node.args(["--streaming", "--work-ms", "5", "--id", "sim"]);
    node.stdout(Stdio::null()).stdin(Stdio::null()).kill_on_drop(true);
    let _node = node.spawn().expect("it starts");
    let registered = async {
        while s.get("/v1/nodes/sim").await.body["streaming"] != true {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(registered).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let (input, out) = (path("input.wav"), path("out.wav"));
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut wav = hound::WavWriter::create(&input, spec).expect("a file");
    for n in 0..32_000 {
        wav.write_sample((f64::from(n / 2) * 0.05).sin() as i16 * 8_000 + 4_000).expect("a sample");
    }
    wav.finalize().expect("written");

    let from_to = ["--from", "en", "--to", "es", "--url", &url];
    let args = [&["say", &input, "--out", &out, "--speed", "4"][..], &from_to].concat();
    let (code, shown, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(shown.contains("1.1  en: 32000 bytes of speech\n     es: [es] 32000 bytes"), "{shown}");
    assert!(shown.contains("SEGMENT") && shown.contains("250 ms of speech"), "{shown}");
    let output = hound::WavReader::open(&out).expect("a WAV file");
    assert_eq!((output.spec().sample_rate, output.len()), (16_000, 4_000));

    let args = [&["say", "--text", "good evening", "--json"][..], &from_to].concat();
    let (code, shown, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let result: serde_json::Value = serde_json::from_str(shown.trim()).expect("JSON");
    assert_eq!(result["text_translated"], "[es] good evening", "{shown}");

    let args = ["say", "--text", "x", "--from", "fr", "--to", "es", "--url", &url];
    let (code, shown, error) = run(&args, &[]).await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("NO_CAPABLE_NODE") && error.contains("1 of 1"), "{shown} {error}");
    let (code, _, error) = run(&["say", "/nowhere.wav", "--from", "en", "--to", "es"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("cannot read /nowhere.wav"), "{error}");
}
