//! What a store URL means, and what is wrong with bad ones.

use super::*;

fn parse(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

fn address(host: &str, port: u16) -> Address {
    Address { host: host.to_owned(), port }
}

#[test]
fn one_server_with_user_password_and_database() {
    let url = parse("redis://lingua:p%40ss%3aword@db.example:6380/3");
    assert_eq!(url.topology, Topology::Standalone);
    assert_eq!(url.addresses, [address("db.example", 6380)]);
    assert_eq!(url.login.user.as_deref(), Some("lingua"));
    assert_eq!(url.login.password.as_deref(), Some("p@ss:word"));
    assert_eq!((url.database, url.tls), (3, false));
    assert_eq!(parse("redis://:secret@h").login.user, None);
    assert_eq!(parse("rediss://[::1]").addresses, [address("::1", 6379)]);
    assert!(parse("rediss://h").tls);
}

#[test]
fn sentinels_and_their_master() {
    let url = parse("redis+sentinel://a:1,b/mymaster/2?sentinel_user=s&sentinel_password=x%2fy");
    let Topology::Sentinel { master, login } = url.topology else { panic!() };
    assert_eq!(url.addresses, [address("a", 1), address("b", 26_379)]);
    assert_eq!((master.as_str(), url.database), ("mymaster", 2));
    assert_eq!(login, Login { user: Some("s".into()), password: Some("x/y".into()) });
}

#[test]
fn a_cluster_has_many_servers_and_one_database() {
    let url = parse("rediss+cluster://a:1,b:2,[fe80::1]:3");
    let all = vec![address("a", 1), address("b", 2), address("fe80::1", 3)];
    assert_eq!((url.topology, url.addresses, url.tls), (Topology::Cluster, all, true));
    assert_eq!(
        "redis+cluster://a/1".parse::<StoreUrl>(),
        Err(UrlError::ClusterDatabase("1".into()))
    );
}

#[test]
fn a_bad_url_is_told_what_is_wrong() {
    let error = |text: &str| text.parse::<StoreUrl>().unwrap_err();
    assert_eq!(error("embedded:"), UrlError::Scheme);
    assert_eq!(error("http://h"), UrlError::Scheme);
    assert_eq!(error("redis+ring://h"), UrlError::Scheme);
    assert_eq!(error("redis://"), UrlError::NoHost);
    assert_eq!(error("redis://h:0"), UrlError::Port("0".into()));
    assert_eq!(error("redis://h:99999"), UrlError::Port("99999".into()));
    assert_eq!(error("redis://h/x"), UrlError::Database("x".into()));
    assert_eq!(error("redis+sentinel://h"), UrlError::NoMaster);
    assert_eq!(error("redis://u:%zz@h"), UrlError::Escape);
    assert_eq!(error("redis://u:%4"), UrlError::Port("%4".into()));
    assert_eq!(error("redis://h/0?db=1"), UrlError::Parameter("db".into()));
    assert!(matches!(error("redis://a,b"), UrlError::Count(2, _)));
    assert!(matches!(
        error(&format!("redis+cluster://{}", "h,".repeat(99))),
        UrlError::Count(100, _)
    ));
}

#[test]
fn a_password_is_never_shown() {
    let url = parse("redis+sentinel://u:secret@h/m?sentinel_password=secret");
    assert!(!format!("{url:?} {url}").contains("secret"));
    assert_eq!(parse("redis://u:secret@h:1/2").to_string(), "redis://h:1/2");
}
