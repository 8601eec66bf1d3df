use super::*;

fn servers(run_id: &str) -> BTreeMap<String, ServerIdentity> {
    let text = format!("# Server\r\nrun_id:{run_id}\r\nrole:master\r\nmaster_replid:abc\r\n");
    let (server, is_master) = read(&text);
    assert!(is_master);
    BTreeMap::from([(String::new(), server)])
}

#[test]
fn a_restarted_server_is_another_store() {
    let mut identity = Servers::default();
    assert!(update(&mut identity, servers("one")));
    assert_eq!(identity.servers[""].run_id, "one");
    assert_eq!(identity.servers[""].replication_id, "abc");
    assert_eq!(identity.changes, 0, "the first identity is not a change");
    assert!(!update(&mut identity, servers("one")));
    assert!(update(&mut identity, servers("two")));
    assert_eq!(identity.changes, 1);
}
