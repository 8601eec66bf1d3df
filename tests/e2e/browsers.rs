//! What web pages may do: calls from other origins, and tokens on WebSockets.
//!
//! A browser sends `Origin`, asks before a call with `OPTIONS`, and cannot set headers of a
//! WebSocket.

use serde_json::json;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, http};

use crate::http::Reply;
use crate::json_socket::JsonSocket;
use crate::raw_node::register;
use crate::scheduler::{Scheduler, job, new_token, run, within};

const APP: &str = "https://app.example";
const ALLOWED: &str = "[server]\nallowed_origins = [\"https://app.example\"]\n";

async fn ask(s: &Scheduler, origin: &str, path: &str) -> Reply {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,idempotency-key"),
    ];
    s.send("OPTIONS", path, &headers, "").await
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call_and_read_the_answer() {
    let s = Scheduler::from_toml(ALLOWED).await;
    let asked = ask(&s, APP, "/v1/translate").await;
    assert_eq!(asked.status, 204, "{:?}", asked.text);
    assert_eq!(asked.header("access-control-allow-origin"), Some(APP));
    let headers = asked.header("access-control-allow-headers").expect("headers").to_lowercase();
    for name in ["authorization", "content-type", "idempotency-key"] {
        assert!(headers.contains(name), "{headers}");
    }
    assert!(asked.header("access-control-allow-methods").expect("methods").contains("POST"));
    assert_eq!(asked.header("vary"), Some("Origin"));

    let call = s.send("POST", "/v1/translate", &[("Origin", APP)], &job().to_string()).await;
    assert_eq!(call.error(), (503, "NO_CAPABLE_NODE"), "an error can be read as well");
    assert_eq!(call.header("access-control-allow-origin"), Some(APP));
    let exposed = call.header("access-control-expose-headers").expect("exposed headers");
    assert!(exposed.contains("X-Request-Id") && exposed.contains("Retry-After"), "{exposed}");
    let missing = s.send("GET", "/v1/nowhere", &[("Origin", APP)], "").await;
    assert_eq!(missing.header("access-control-allow-origin"), Some(APP));
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn pages_of_other_origins_get_no_permission() {
    for config in [ALLOWED, ""] {
        let s = Scheduler::from_toml(config).await;
        let asked = ask(&s, "https://evil.example", "/v1/translate").await;
        assert_eq!(asked.header("access-control-allow-origin"), None);
        assert_eq!(asked.error(), (403, "FORBIDDEN"));
        let origin = [("Origin", "https://evil.example")];
        let call = s.send("GET", "/v1/nodes", &origin, "").await;
        assert_eq!(call.error(), (403, "FORBIDDEN"));
        assert_eq!(call.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn an_origin_that_no_browser_sends_is_a_bad_configuration() {
    for origin in ["https://app.example/", "app.example", "https://app.example/chat", "*"] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let config = format!("[server]\nallowed_origins = [{origin:?}]\n");
        std::fs::write(file.path(), config).expect("written");
        let path = file.path().to_str().expect("a path");
        let (code, _, error) = run(&["config", "check", "--config", path], &[]).await;
        assert_eq!(code, Some(64), "{origin}: {error}");
        assert!(error.contains("allowed_origins") && error.contains("https://"), "{error}");
    }
}

/// Opens a socket as a browser does: the protocols are all that a page can say.
pub(crate) async fn open(
    s: &Scheduler,
    path: &str,
    protocols: &str,
    origin: Option<&str>,
) -> Result<(JsonSocket, Option<String>), http::Response<Option<Vec<u8>>>> {
    let url = format!("ws://{}{path}", s.address);
    let mut request = url.into_client_request().expect("a URL");
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", protocols.parse().expect("a header"));
    if let Some(origin) = origin {
        headers.insert("origin", origin.parse().expect("a header"));
    }
    match within(Box::pin(tokio_tungstenite::connect_async(request))).await {
        Ok((stream, response)) => {
            let selected = response.headers().get("sec-websocket-protocol");
            let selected = selected.map(|name| name.to_str().expect("ASCII").to_owned());
            Ok((JsonSocket { stream }, selected))
        }
        Err(Error::Http(response)) => Err(*response),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_token_may_be_offered_as_a_protocol_of_a_websocket() {
    let (mut file, mut tokens) = (String::new(), vec![]);
    for role in ["node", "client"] {
        let (token, config) = new_token(&["--role", role]).await;
        tokens.push(token);
        file += &config;
    }
    let s = Scheduler::from_toml(&(file + ALLOWED)).await;
    let [node, client] = &tokens[..] else { panic!("two tokens") };

    let offered = format!("lingua.v1, lingua.token.{node}");
    let (mut socket, selected) = open(&s, "/v1/node/ws", &offered, None).await.expect("opened");
    assert_eq!(selected.as_deref(), Some("lingua.v1"), "and not the token");
    socket.send(register("n1", 1)).await;
    assert_eq!(socket.next().await["type"], "registered");

    let offered = format!("lingua.v1, lingua.token.{client}");
    let opened = open(&s, "/v1/session/ws", &offered, Some(APP)).await;
    let (mut session, selected) = opened.expect("opened");
    assert_eq!(selected.as_deref(), Some("lingua.v1"));
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    session.send(start).await;
    assert_eq!(session.next().await["type"], "session_started");

    let refusals = [
        ("lingua.v1", None, 401),
        ("lingua.v1, lingua.token.guess", None, 401),
        (&*format!("lingua.v1, lingua.token.{node}"), None, 403),
        (&*offered, Some("https://evil.example"), 403),
    ];
    for (protocols, origin, status) in refusals {
        let refused = open(&s, "/v1/session/ws", protocols, origin).await.err().expect("refused");
        assert_eq!(refused.status().as_u16(), status, "{protocols}");
        assert_eq!(refused.headers().get("sec-websocket-protocol"), None);
    }
}
