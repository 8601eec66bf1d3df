use super::*;

#[test]
fn a_grant_reads_back_as_it_was_written() {
    let grant = Grant {
        node: NodeId::new("rack:3@site-1").unwrap(),
        cell: CellId::new(7).unwrap(),
        slot: Slot::new(99).unwrap(),
        epoch: Epoch(1_800_000_000_123),
        fence: Fence(1_800_000_000_123_456),
        via: InstanceId::new("host:7410").unwrap(),
    };
    assert_eq!(read_grant(&grant_text(Some(&grant))), Some(Some(grant)));
    assert_eq!(read_grant(&grant_text(None)), Some(None));
    assert_eq!(read_grant("7,99"), None);
}

fn new_job(owner: &InstanceId) -> NewJob {
    let (id, owner, spec) = (JobId::new(7), owner.clone(), Bytes::new());
    NewJob { id, owner, spec, deadline_ms: None, recoverable: true, label: 0 }
}

#[test]
fn a_head_reads_back_as_it_was_written() {
    let (owner, attempt) = (InstanceId::new("host:7410").unwrap(), Attempt(3));
    let stage = Stage { state: JobState::Dispatched, attempt };
    let times =
        RecordWriter::default().double(1_800_000_000_456).double(1_800_000_000_123).double(0).0;
    let deadline_ms = Some(1_900_000_000_000);
    let new = NewJob { deadline_ms, label: u64::MAX - 3, ..new_job(&owner) };
    let head = [start(stage, &owner, 7), times, rest(&new)].concat();
    let record = read_head(JobId::new(7), &head).unwrap();
    assert_eq!((record.stage, record.owner), (stage, owner));
    assert_eq!((record.updated_ms, record.created_ms), (1_800_000_000_456, 1_800_000_000_123));
    assert_eq!((record.deadline_ms, record.recoverable), (Some(1_900_000_000_000), true));
    assert_eq!((record.label, record.grant, record.kept_until_ms), (new.label, None, None));
}

#[test]
fn a_damaged_record_is_an_error_that_names_the_job() {
    let owner = InstanceId::new("a").unwrap();
    let good = [start(NEW, &owner, 0), vec![0; 24], rest(&new_job(&owner))].concat();
    assert!(read_head(JobId::new(7), &good).is_ok());
    let (mut no_state, mut no_owner) = (good.clone(), good.clone());
    (no_state[0], no_owner[5]) = (99, 200);
    for head in [&[][..], &good[..9], &no_state, &no_owner] {
        let error = read_head(JobId::new(7), head).unwrap_err();
        assert_eq!(error.code(), "INTERNAL", "{error}");
        assert!(error.to_string().contains(&JobId::new(7).to_string()), "{error}");
    }
}
