//! `lingua jobs`: what is being translated and what came of it.

use clap::{Args, Subcommand};
use lingua_core::job::JobState;
use lingua_core::{JobId, LangPair};
use lingua_wire::view::{AttemptView, JobList, JobView, Timings};

use crate::api::{self, Target};
use crate::screen::{self, Sheet, age, ago, card, cell, colours, number, or_dash, say};
use crate::serve::wall_ms;

/// Flags of `lingua jobs`.
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    command: Option<JobsCommand>,
    /// Only jobs in this state, such as ACKED or FAILED.
    #[arg(long, global = true, value_parser = state)]
    state: Option<JobState>,
    /// Most jobs to list.
    #[arg(long, global = true, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    target: Target,
}

/// What to show.
#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Jobs, one to a line; the default.
    Ls,
    /// Everything about one job.
    Show {
        /// Its id.
        id: JobId,
    },
}

fn state(name: &str) -> Result<JobState, String> {
    let known = JobState::ALL.map(JobState::as_str).join(", ");
    JobState::from_name(&name.to_ascii_uppercase()).ok_or(format!("use one of {known}"))
}

pub(crate) async fn run(args: JobsArgs) -> anyhow::Result<()> {
    let api = args.target.api()?;
    match args.command {
        None | Some(JobsCommand::Ls) => {
            let state = args.state.map(|state| format!("&state={state}")).unwrap_or_default();
            let answer = api.get(&format!("/v1/jobs?limit={}{state}", args.limit)).await?;
            if args.target.json {
                api::print_raw(&answer);
                return Ok(());
            }
            let JobList { jobs, .. } = api::read(&answer)?;
            say(table(&jobs, wall_ms(), colours()));
        }
        Some(JobsCommand::Show { id }) => {
            let answer = api.get(&format!("/v1/jobs/{id}")).await?;
            if args.target.json {
                api::print_raw(&answer);
                return Ok(());
            }
            say(show(&api::read(&answer)?, wall_ms()));
        }
    }
    Ok(())
}

fn table(jobs: &[JobView], now_ms: u64, colours: bool) -> String {
    let headings = ["JOB", "STATE", "PAIR", "NODE", ">ATTEMPT", ">AGE", ">TOTAL"];
    let mut sheet = Sheet::new(&headings, colours);
    for job in jobs {
        sheet.row([
            cell(job.job_id),
            screen::state(job.state.as_str()),
            cell(pair(job)),
            cell(or_dash(job.node_id.as_ref())),
            number(job.attempt_id),
            number(age(now_ms.saturating_sub(job.created_ms))),
            number(ms(job.timings.total_ms)),
        ]);
    }
    sheet.finish("No jobs.")
}

fn show(job: &JobView, now_ms: u64) -> String {
    let Timings { queue_ms, dispatch_ms, ack_ms, run_ms, total_ms } = job.timings;
    let deadline = job.deadline_at_ms.map(|at_ms| match at_ms.checked_sub(now_ms) {
        Some(left_ms) => format!("in {}", age(left_ms)),
        None => ago(at_ms, now_ms),
    });
    let mut fields = vec![
        ("job", job.job_id.to_string()),
        ("state", job.state.to_string()),
        ("pair", pair(job).to_string()),
        ("session", or_dash(job.session_id.as_ref())),
        ("node", or_dash(job.node_id.as_ref())),
        ("attempt", job.attempt_id.to_string()),
        ("instance", or_dash(job.instance_id.as_ref())),
        ("trace", or_dash(job.trace_id.as_ref())),
        ("accepted", ago(job.created_ms, now_ms)),
        ("last moved", ago(job.updated_ms, now_ms)),
        ("deadline", or_dash(deadline)),
        ("waited for a slot", ms(queue_ms)),
        ("accepted to sent", ms(dispatch_ms)),
        ("sent to confirmed", ms(ack_ms)),
        ("confirmed to done", ms(run_ms)),
        ("altogether", ms(total_ms)),
    ];
    for tried in &job.attempts {
        fields.push(("tried", attempt(tried)));
    }
    if let Some(error) = &job.error {
        fields.push(("error", error.clone()));
    }
    if let Some(detail) = &job.detail {
        fields.push(("detail", detail.clone()));
    }
    if let Some(partial) = &job.partial {
        fields.push(("text so far", partial.clone()));
    }
    if let Some(result) = &job.result {
        fields.push(("result", result.as_str().to_owned()));
    }
    card(&fields)
}

fn attempt(tried: &AttemptView) -> String {
    let node = or_dash(tried.node_id.as_ref());
    let took = tried.ended_ms.zip(tried.reserved_ms).map(|(end, start)| end.saturating_sub(start));
    let took = took.map(|ms| format!(", {ms} ms")).unwrap_or_default();
    let reason = tried.reason.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
    format!("#{} on {node}: {}{reason}{took}", tried.attempt_id, tried.state)
}

fn pair(job: &JobView) -> LangPair {
    LangPair { src: job.src_lang, tgt: job.tgt_lang }
}

fn ms(value: Option<u64>) -> String {
    or_dash(value.map(|ms| format!("{ms} ms")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"{"job_id":"job-01921f3e000070008000000000000001","state":"DONE",
        "src_lang":"auto","tgt_lang":"en","node_id":"node-1","attempt_id":2,
        "attempts":[{"attempt_id":1,"node_id":"node-2","state":"FAILED","reason":"BUSY",
        "reserved_ms":1000,"ended_ms":1040}],"timings":{"queue_ms":0,"total_ms":250},
        "result":{"text_translated":"hello"},"created_ms":1000,"updated_ms":1250}"#;

    fn job() -> JobView {
        api::read(JOB.as_bytes()).unwrap()
    }

    #[test]
    fn a_job_is_one_line() {
        let text = table(&[job()], 61_000, false);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().skip(1).collect();
        assert_eq!(words, ["DONE", "*:en", "node-1", "2", "60", "s", "250", "ms"]);
    }

    #[test]
    fn show_tells_every_try_and_the_result() {
        let text = show(&job(), 2_000);
        assert!(text.contains("#1 on node-2: FAILED, BUSY, 40 ms"), "{text}");
        assert!(text.contains(r#"{"text_translated":"hello"}"#), "{text}");
    }

    #[test]
    fn states_are_taken_in_any_case() {
        assert_eq!(state("failed"), Ok(JobState::Failed));
        assert!(state("lost").unwrap_err().contains("DONE"));
    }
}
