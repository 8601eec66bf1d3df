//! `lingua say`: speaks a file or a text to a scheduler, and shows what comes back.
//!
//! | file | what |
//! |---|---|
//! | `wav.rs` | reading and writing WAV files |
//!
//! Start at [`run`]. The sound is sent as a microphone would send it, at real time unless it is asked to hurry.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use lingua_core::Source;
use lingua_sdk::session::Event;
use lingua_sdk::{Session, SessionOptions};
use lingua_wire::session::{AudioFormat, Missing, SegmentResult, SessionStart};
use lingua_wire::to_json;
use tokio::time::{MissedTickBehavior, interval};

use crate::api::TargetArgs;
use crate::screen::{TextTable, cell, colours, number, or_dash, print_line, print_text};
use crate::simulated::socket_url;

mod wav;

use wav::{Sound, Speech};

/// How much is sent at a time.
const FRAME_MS: u64 = 20;

/// Flags of `lingua say`.
#[derive(Debug, Args)]
pub(crate) struct SayArgs {
    /// A WAV file: 16 bits, 8, 16, 24 or 48 kHz.
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Send this text instead of sound; may be given several times.
    #[arg(long)]
    text: Vec<String>,
    /// What is spoken, or `auto`.
    #[arg(long, value_name = "LANG")]
    from: String,
    /// What it shall become.
    #[arg(long, value_name = "LANG")]
    to: String,
    /// Save the translated speech here.
    #[arg(long, value_name = "OUT.wav")]
    out: Option<PathBuf>,
    /// How many times faster than real time to speak, up to 4.
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
    let speech = args.file.as_deref().map(Speech::read).transpose()?;
    let audio = speech.as_ref().map(|speech| AudioFormat {
        format: "pcm16".into(),
        sample_rate: Some(speech.sample_rate),
    });
    let start = SessionStart {
        src_lang: Some(args.from.as_str().into()),
        tgt_lang: Some(args.to.as_str().into()),
        require_tts: Some(args.out.is_some()),
        partials: Some(true),
        audio,
        ..SessionStart::default()
    };
    let mut session = Session::start(args.options()?, &start).await?;
    let mut heard = Heard::new(args.target.json);
    if let Some(speech) = &speech {
        speak(&mut session, speech, args.speed, &mut heard).await?;
    }
    for text in &args.text {
        session.text(text, None).await;
    }
    session.end().await;
    while let Some(event) = session.next().await? {
        heard.take(event);
    }
    heard.finish(args.out.as_deref())
}

impl SayArgs {
    fn options(&self) -> anyhow::Result<SessionOptions> {
        let mut options = SessionOptions::new(socket_url(&self.target.url, "/v1/session/ws"));
        if let Some(token) = &self.target.token {
            options = options.token(token);
        }
        if let Some(ca) = &self.target.ca {
            options = options.ca(ca)?;
        }
        Ok(options)
    }
}

/// Sends the sound piece by piece, and takes what comes meanwhile.
async fn speak(
    session: &mut Session,
    speech: &Speech,
    speed: f64,
    heard: &mut Heard,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_millis(FRAME_MS).div_f64(speed));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for frame in speech.frames(FRAME_MS) {
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => break,
                event = session.next() => match event? {
                    Some(event) => heard.take(event),
                    None => bail!("the scheduler ended the session"),
                },
            }
        }
        session.audio(frame).await;
    }
    session.turn_end().await;
    Ok(())
}

/// What came back.
struct Heard {
    json: bool,
    /// Partial texts are written over each other.
    is_live: bool,
    results: Vec<SegmentResult<'static>>,
    missing: usize,
}

impl Heard {
    fn new(json: bool) -> Self {
        let is_live = std::io::stdout().is_terminal() && !json;
        Self { json, is_live, results: vec![], missing: 0 }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Partial { turn, segment, text } if self.is_live => {
                print_text(&format!("\r\x1b[K{turn}.{segment}  … {text}"));
            }
            Event::Partial { .. } | Event::Accepted(_) => {}
            Event::Result(result) => {
                self.show_result(&result);
                self.results.push(*result);
            }
            Event::Missing(missing) => {
                self.show_missing(&missing);
                self.missing += 1;
            }
            Event::Refused { code, detail } => eprintln!("lingua: {code}: {detail}"),
            Event::Resumed => eprintln!("lingua: the connection broke; the session goes on"),
        }
    }

    fn line(&self, text: &str) {
        if self.is_live {
            print_text("\r\x1b[K");
        }
        print_line(text);
    }

    fn show_result(&self, result: &SegmentResult<'_>) {
        if self.json {
            return print_line(to_json(result));
        }
        let src = match result.src_lang {
            Source::Known(lang) => lang.to_string(),
            Source::Auto => "auto".to_owned(),
        };
        let (turn, segment, tgt) = (result.turn, result.segment, result.tgt_lang);
        let said = result.text_asr.as_deref().unwrap_or("-");
        let means = result.text_translated.as_deref().unwrap_or("-");
        self.line(&format!("{turn}.{segment}  {src}: {said}\n     {tgt}: {means}"));
    }

    fn show_missing(&self, missing: &Missing<'_>) {
        if self.json {
            return print_line(to_json(missing));
        }
        let Missing { turn, segment, error, detail, .. } = missing;
        self.line(&format!("{turn}.{segment}  missing: {error}: {detail}"));
    }

    /// Shows how long things took, and saves what is to be heard.
    fn finish(self, out: Option<&std::path::Path>) -> anyhow::Result<()> {
        if !self.json {
            print_line(format!("\n{}", self.timings()));
        }
        if let Some(path) = out {
            let mut sound = Sound::default();
            for result in &self.results {
                if let Some(audio) = &result.tts_audio {
                    sound.add(audio)?;
                }
            }
            let ms =
                sound.write(path).with_context(|| format!("cannot write {}", path.display()))?;
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
        let headings =
            ["SEGMENT", ">SPEECH", ">DELAY", ">QUEUE", ">DISPATCH", ">ACK", ">RUN", ">TOTAL"];
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
        sheet.finish("nothing was said")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_speaks_faster_than_a_session_takes() {
        assert_eq!(speed("2"), Ok(2.0));
        assert!(["0", "4.1", "NaN", "fast"].iter().all(|text| speed(text).is_err()));
    }
}
