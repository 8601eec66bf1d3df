//! Damaged, foreign and occupied directories: a clear error, or what was answered; never a panic,
//! and never a job that nobody made.

use std::fs;
use std::path::Path;

use lingua_core::job::JobState;
use lingua_store::Store;
use lingua_store::conformance::World;
use lingua_store::embedded::OpenError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{FILE, STATES, all_jobs, open, quick_dir, spec, try_open, write_job};

const JOBS: u128 = 60;
const NODES: usize = 8;
const CASES: u64 = 400;

/// A file with jobs and nodes, written one after the other.
async fn image() -> Vec<u8> {
    let dir = quick_dir();
    let store = open(dir.path());
    let w = World { store, clock: Default::default(), rules: Default::default() };
    for n in 0..NODES {
        w.assign(n, 1, 0).await;
    }
    for n in 0..JOBS {
        write_job(&w.store, n, STATES.len()).await;
    }
    drop(w);
    fs::read(dir.path().join(FILE)).expect("the file")
}

/// Opens a damaged file. If that works, it must hold what was there at some earlier time.
async fn check(dir: &Path, what: &str) -> bool {
    let store = match try_open(dir) {
        Ok(store) => store,
        Err(error @ OpenError::Corrupt { .. }) => {
            let text = error.to_string();
            assert!(text.contains(FILE) && text.contains("move it away"), "{what}: {text}");
            assert_eq!(error.code(), "DATA_CORRUPT");
            return false;
        }
        // The number of the version is a number like others.
        Err(OpenError::UnknownVersion { .. }) => return false,
        Err(error) => panic!("{what}: {error}"),
    };
    let jobs = all_jobs(&store).await;
    let is_prefix = jobs.iter().enumerate().all(|(n, job)| job.id.number() == n as u128);
    assert!(is_prefix, "{what}: a job is missing or invented");
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(job.spec, spec(n as u128), "{what}: job {n} is another");
        let is_last = n + 1 == jobs.len();
        assert!(is_last || job.stage.state == JobState::Failed, "{what}: job {n} fell back");
    }
    true
}

#[tokio::test]
async fn damaged_files_give_an_error_or_an_earlier_state() {
    let image = image().await;
    let dir = quick_dir();
    let file = dir.path().join(FILE);
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..CASES {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = image.clone();
        let what = match seed % 4 {
            0 => {
                bytes.truncate(rng.random_range(0..image.len()));
                format!("seed {seed}: cut to {} bytes", bytes.len())
            }
            kind => {
                // A third of the damage is in the head of the file, where it hurts most.
                let within = if kind == 1 { 1024 } else { image.len() };
                let at: Vec<usize> =
                    (0..rng.random_range(1..5)).map(|_| rng.random_range(0..within)).collect();
                at.iter().for_each(|&at| bytes[at] ^= 1 << rng.random_range(0..8));
                format!("seed {seed}: flipped bits of bytes {at:?}")
            }
        };
        fs::write(&file, bytes).unwrap();
        match check(dir.path(), &what).await {
            true => opened += 1,
            false => refused += 1,
        }
    }
    // Most of a small file is free space; but there must be cases of both kinds to prove anything.
    assert!(opened > 20 && refused > 100, "{opened} opened, {refused} refused");
}

#[tokio::test]
async fn an_undamaged_image_opens() {
    let dir = quick_dir();
    fs::write(dir.path().join(FILE), image().await).unwrap();
    let store = open(dir.path());
    assert_eq!(all_jobs(&store).await.len() as u128, JOBS);
}

#[tokio::test]
async fn a_foreign_file_is_refused_and_left_alone() {
    for foreign in [&b""[..], b"hello", &[0; 1 << 20], &[0xff; 4096]] {
        let dir = quick_dir();
        let file = dir.path().join(FILE);
        fs::write(&file, foreign).unwrap();
        let error = try_open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert_eq!(fs::read(&file).unwrap(), foreign);
    }
}

#[tokio::test]
async fn a_file_that_was_never_completed_is_made_anew() {
    let dir = quick_dir();
    fs::write(dir.path().join("store.redb.new"), b"killed while it was made").unwrap();
    let store = open(dir.path());
    write_job(&store, 1, 0).await;
    drop(store);
    assert_eq!(all_jobs(&open(dir.path())).await.len(), 1);
}

#[tokio::test]
async fn an_unknown_version_is_refused_with_both_numbers() {
    let dir = quick_dir();
    drop(open(dir.path()));
    let database = redb::Database::open(dir.path().join(FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("version", 99).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::UnknownVersion { found: 99, known: 6, .. }), "{error}");
    assert_eq!(error.code(), "DATA_VERSION_UNKNOWN");
}

#[tokio::test]
async fn a_directory_has_one_user_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(&error, OpenError::InUse { dir: found } if found == dir.path()), "{error}");
    assert!(error.to_string().contains("choose another directory"), "{error}");
    assert!(error.is_safe_to_retry());
    let clone = store.clone();
    drop(store);
    assert!(try_open(dir.path()).is_err(), "a clone still has it");
    write_job(&clone, 1, 0).await;
    drop(clone);
    assert_eq!(open(dir.path()).cells().await, Ok(vec![]));
}

#[tokio::test]
async fn a_path_that_cannot_be_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = try_open(&file.join("data")).unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("file/data"), "{error}");
}
