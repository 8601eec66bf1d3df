//! `lingua jobs`: jobs, their states and results.

use clap::Args;
use lingua_core::job::JobState;
use lingua_core::{JobId, LangPair, NodeId};
use lingua_wire::to_json;
use lingua_wire::view::{AttemptView, JobList, JobView, Timings};

use crate::api::{ListArgs, ListCommand, parse_reply};
use crate::screen::{self, TextTable, age, ago, cell, colours, field_list, number, or_dash};
use crate::serve::wall_ms;

/// Most jobs that the scheduler puts on one page.
const PAGE_MAX: usize = 1000;

/// Most pages for one list: a page of rare jobs may be empty while more follow.
const PAGES_MAX: usize = 1000;

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    list: ListArgs<JobId>,
    /// Only jobs in this state, such as ACKED or FAILED.
    #[arg(long, global = true, value_parser = state)]
    state: Option<JobState>,
    /// Only jobs of this session.
    #[arg(long, global = true)]
    session: Option<String>,
    /// Only jobs whose last attempt is or was on this node.
    #[arg(long, global = true)]
    node: Option<NodeId>,
    /// Most jobs to list.
    #[arg(long, global = true, default_value_t = 50)]
    limit: usize,
    /// Where to go on: what the list before said.
    #[arg(long, global = true)]
    cursor: Option<JobId>,
}

fn state(name: &str) -> Result<JobState, String> {
    name.to_ascii_uppercase().parse()
}

pub(crate) async fn run(args: JobsArgs) -> anyhow::Result<()> {
    match &args.list.command {
        None | Some(ListCommand::Ls) => list(&args).await,
        Some(ListCommand::Show { id }) => {
            let path = format!("/v1/jobs/{id}");
            args.list.target.show(&path, |job| show(job, wall_ms())).await
        }
    }
}

/// Prints as many jobs as were asked for. A page may be short, or even empty, while more follow.
async fn list(args: &JobsArgs) -> anyhow::Result<()> {
    let target = &args.list.target;
    let client = target.scheduler.client()?;
    let mut found = JobList { jobs: vec![], next: args.cursor };
    for _ in 0..PAGES_MAX {
        let page = client.get_raw(&args.path(&found)).await?;
        let page: JobList = parse_reply(&page)?;
        found.jobs.extend(page.jobs);
        found.next = page.next;
        if found.next.is_none() || found.jobs.len() >= args.limit {
            break;
        }
    }
    target.print(to_json(&found).as_bytes(), |list: &JobList| {
        let mut text = table(&list.jobs, wall_ms(), colours());
        if let Some(next) = list.next {
            text += &format!("\nMore: --cursor {next}");
        }
        text
    })
}

impl JobsArgs {
    /// The page after those that were found.
    fn path(&self, found: &JobList) -> String {
        let missing = self.limit.saturating_sub(found.jobs.len()).clamp(1, PAGE_MAX);
        let mut path = format!("/v1/jobs?limit={missing}");
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                path += &format!("&{name}={}", in_query(&value));
            }
        };
        add("state", self.state.map(|state| state.to_string()));
        add("session", self.session.clone());
        add("node", self.node.as_ref().map(NodeId::to_string));
        add("cursor", found.next.map(|next| next.to_string()));
        path
    }
}

/// A value as a query has it.
fn in_query(value: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

fn table(jobs: &[JobView], now_ms: u64, colours: bool) -> String {
    let headings = ["JOB", "STATE", "PAIR", "NODE", ">ATTEMPT", ">AGE", ">TOTAL"];
    let mut rows = TextTable::new(&headings, colours);
    for job in jobs {
        rows.row([
            cell(job.job_id),
            screen::state(job.state.as_str()),
            cell(pair(job)),
            cell(or_dash(job.node_id.as_ref())),
            number(job.attempt_id),
            number(age(now_ms.saturating_sub(job.created_ms))),
            number(ms(job.timings.total_ms)),
        ]);
    }
    rows.finish("No jobs.")
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
        ("attempts", job.attempt_id.to_string()),
        ("instance", or_dash(job.instance_id.as_ref())),
        ("trace", or_dash(job.trace_id.as_ref())),
        ("accepted", ago(job.created_ms, now_ms)),
        ("last change", ago(job.updated_ms, now_ms)),
        ("deadline", or_dash(deadline)),
        ("waited for a slot", ms(queue_ms)),
        ("accepted to sent", ms(dispatch_ms)),
        ("sent to confirmed", ms(ack_ms)),
        ("confirmed to done", ms(run_ms)),
        ("total", ms(total_ms)),
    ];
    fields.extend(job.attempts.iter().map(|attempt| ("attempt", describe_attempt(attempt))));
    let result = job.result.as_ref().map(|result| result.as_str());
    let texts = [
        ("error", job.error.as_deref()),
        ("detail", job.detail.as_deref()),
        ("text so far", job.partial.as_deref()),
        ("result", result),
    ];
    fields.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?.to_owned()))));
    field_list(&fields)
}

fn describe_attempt(attempt: &AttemptView) -> String {
    let node = or_dash(attempt.node_id.as_ref());
    let took =
        attempt.ended_ms.zip(attempt.reserved_ms).map(|(end, start)| end.saturating_sub(start));
    let took = took.map(|ms| format!(", {ms} ms")).unwrap_or_default();
    let reason = attempt.reason.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
    format!("#{} on {node}: {}{reason}{took}", attempt.attempt_id, attempt.state)
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
        crate::api::parse_reply(JOB.as_bytes()).unwrap()
    }

    #[test]
    fn a_value_is_encoded_for_a_query() {
        assert_eq!(in_query("room-1"), "room-1");
        assert_eq!(in_query("a b&c=语"), "a%20b%26c%3D%E8%AF%AD");
    }

    #[test]
    fn a_job_is_one_line() {
        let text = table(&[job()], 61_000, false);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().skip(1).collect();
        assert_eq!(words, ["DONE", "*:en", "node-1", "2", "60", "s", "250", "ms"]);
    }

    #[test]
    fn show_lists_every_attempt_and_the_result() {
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
