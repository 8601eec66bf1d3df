//! `lingua say`: sends a WAV file or text to a scheduler and prints the translation.
//!
//! | file | what |
//! |---|---|
//! | `wav.rs` | reads and writes WAV files |
//!
//! Start at [`run`]. Audio is sent as a microphone would send it: in real time, or `--speed` times
//! faster.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use lingua_core::Source;
use lingua_sdk::Session;
use lingua_sdk::session::SessionEvent;
use lingua_wire::session::{
    AudioFormat, SegmentMissing, SegmentResult, SessionPartial, SessionStart,
};
use lingua_wire::{Message, to_json};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::TargetArgs;
use crate::clean::{clean, clean_json};
use crate::screen::{TextTable, cell, colours, number, or_dash, print_line, print_over};

mod wav;

use wav::WavInput;

/// Length of a frame.
const FRAME_MS: u64 = 20;

/// Flags of `lingua say`.
#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// A WAV file: 16 bits, 8, 16, 24 or 48 kHz.
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Send this text instead of audio; may be given several times.
    #[arg(long)]
    text: Vec<String>,
    /// The spoken language, or `auto`.
    #[arg(long, visible_alias = "src", value_name = "LANG")]
    from: String,
    /// The language of the translation.
    #[arg(long, visible_alias = "tgt", value_name = "LANG")]
    to: String,
    /// Save the translated speech here.
    #[arg(long, value_name = "OUT.wav")]
    out: Option<PathBuf>,
    /// Send the audio this many times faster than real time, up to 4.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    #[command(flatten)]
    target: TargetArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|speed| (0.1..=4.0).contains(speed));
    found.ok_or_else(|| "give a number from 0.1 to 4, such as 2".to_owned())
}

pub(crate) async fn run(args: SayArgs) -> anyhow::Result<()> {
    let input = args.file.as_deref().map(WavInput::read).transpose()?;
    let audio = input
        .as_ref()
        .map(|input| AudioFormat { format: "pcm16".into(), sample_rate: Some(input.sample_rate) });
    let start = SessionStart {
        src_lang: Some(args.from.clone()),
        tgt_lang: Some(args.to.clone()),
        require_tts: Some(args.out.is_some()),
        partials: Some(true),
        audio,
        ..SessionStart::default()
    };
    let mut session = Session::start(args.target.scheduler.session_settings()?, &start).await?;
    let mut printer = Printer::new(args.target.json);
    if let Some(input) = &input {
        send_audio(&mut session, input, args.speed, &mut printer).await?;
    }
    for text in &args.text {
        session.text(text, None).await;
    }
    session.end().await;
    while let Some(event) = session.next().await? {
        printer.print(event);
    }
    printer.finish(args.out.as_deref())
}

/// Sends the audio frame by frame and prints what arrives meanwhile.
async fn send_audio(
    session: &mut Session,
    input: &WavInput,
    speed: f64,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_millis(FRAME_MS).div_f64(speed));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for frame in input.frames(FRAME_MS) {
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => break,
                event = session.next() => match event? {
                    Some(event) => printer.print(event),
                    None => bail!("the scheduler ended the session"),
                },
            }
        }
        session.audio(frame).await;
    }
    session.turn_end().await;
    Ok(())
}

/// Prints results and keeps them for the summary.
struct Printer {
    json: bool,
    /// Shows partial texts, each in place of the previous one.
    is_live: bool,
    results: Vec<SegmentResult<'static>>,
    missing: usize,
}

impl Printer {
    fn new(json: bool) -> Self {
        let is_live = std::io::stdout().is_terminal() && !json;
        Self { json, is_live, results: vec![], missing: 0 }
    }

    fn print(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Partial(SessionPartial { turn, segment, text }) if self.is_live => {
                print_over(&format!("{turn}.{segment}  … {}", clean(&text)));
            }
            SessionEvent::Partial(_) | SessionEvent::Accepted(_) => {}
            SessionEvent::Result(result) => {
                self.print_message(&*result, describe_result(&result));
                self.results.push(*result);
            }
            SessionEvent::Missing(missing) => {
                let SegmentMissing { turn, segment, error, detail, .. } = &missing;
                let (error, detail) = (clean(error), clean(detail));
                let text = format!("{turn}.{segment}  missing: {error}: {detail}");
                self.print_message(&missing, text);
                self.missing += 1;
            }
            SessionEvent::Refused { code, detail } => {
                eprintln!("lingua: {}: {}", clean(&code), clean(&detail));
            }
            SessionEvent::Resumed => {
                eprintln!("lingua: the connection broke; the session has resumed")
            }
        }
    }

    fn print_message(&self, message: &(impl Message + Serialize), text: String) {
        match self.json {
            true => print_line(clean_json(&to_json(message))),
            false if self.is_live => print_over(&(text + "\n")),
            false => print_line(text),
        }
    }

    /// Prints the timings and saves the translated speech.
    fn finish(self, out: Option<&std::path::Path>) -> anyhow::Result<()> {
        if !self.json {
            print_line(format!("\n{}", self.timings()));
        }
        if let Some(path) = out {
            let speech = self.results.iter().filter_map(|result| result.tts_audio.as_ref());
            let ms = wav::write(path, speech)
                .with_context(|| format!("cannot write {}", path.display()))?;
            if !self.json {
                print_line(format!("{ms} ms of speech in {}", path.display()));
            }
        }
        match self.missing {
            0 => Ok(()),
            missing => bail!("{missing} of {} segments are missing", missing + self.results.len()),
        }
    }

    fn timings(&self) -> String {
        let headings = [
            "SEGMENT",
            ">SPEECH MS",
            ">DELAY MS",
            ">QUEUE MS",
            ">DISPATCH MS",
            ">ACK MS",
            ">RUN MS",
            ">TOTAL MS",
        ];
        let mut sheet = TextTable::new(&headings, colours());
        for result in &self.results {
            let (timings, job) = (&result.timings, &result.timings.job);
            let ms = |value: Option<u64>| number(or_dash(value));
            sheet.row([
                cell(format!("{}.{}", result.turn, result.segment)),
                ms(timings.speech_ms),
                ms(timings.delay_ms),
                ms(job.queue_ms),
                ms(job.dispatch_ms),
                ms(job.ack_ms),
                ms(job.run_ms),
                ms(job.total_ms),
            ]);
        }
        sheet.finish("there are no results")
    }
}

fn describe_result(result: &SegmentResult<'_>) -> String {
    let src = match result.src_lang {
        Source::Known(lang) => lang.to_string(),
        Source::Auto => "auto".to_owned(),
    };
    let (turn, segment, tgt) = (result.turn, result.segment, result.tgt_lang);
    let spoken = clean(result.text_asr.as_deref().unwrap_or("-"));
    let translated = clean(result.text_translated.as_deref().unwrap_or("-"));
    format!("{turn}.{segment}  {src}: {spoken}\n     {tgt}: {translated}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_beyond_what_a_session_accepts_are_refused() {
        assert_eq!(speed("2"), Ok(2.0));
        assert!(["0", "4.1", "NaN", "fast"].iter().all(|text| speed(text).is_err()));
    }
}
