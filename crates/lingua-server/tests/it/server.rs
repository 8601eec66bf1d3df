//! A server on a port of its own, and a node for it.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use lingua_core::{InstanceId, Rules};
use lingua_engine::options::EngineOptions;

use lingua_engine::{EngineService, TokioTimer};
use lingua_server::{Server, ServerOptions};
use lingua_store::{Embedded, StoreLimits};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Fails a test that waits for something that does not happen.
pub(crate) async fn within<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), event).await.expect("it does not happen")
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::with(ServerOptions::default()).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Self {
        let timer = TokioTimer::starting_at(1_700_000_000_000);
        let store = Embedded::new(Rules::default(), StoreLimits::default(), timer.clone());
        let instance = InstanceId::new("i1").unwrap();
        let mut registry = Registry::with_prefix("lingua");
        let engine_options = EngineOptions::new(instance, 7);
        let service = EngineService::new(engine_options, store, timer, &mut registry);
        let server = Server::new(service.handle(), options, registry);
        tokio::spawn(service.run(std::future::pending()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            server.serve(listener, async { drop(stopped.await) }).await.unwrap();
        });
        Self { address, stop, serving }
    }

    /// Tells the server to stop; the result ends when it has.
    pub(crate) fn stop(self) -> JoinHandle<()> {
        drop(self.stop);
        self.serving
    }
}

/// A body for `/v1/translate`.
pub(crate) fn job() -> Value {
    json!({"src_lang": "zh", "tgt_lang": "en", "text": "你好"})
}

/// A node's end of its WebSocket.
pub(crate) struct TestNode(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl TestNode {
    pub(crate) async fn connect(server: &TestServer) -> Self {
        let (socket, _) = connect_async(format!("ws://{}/v1/node/ws", server.address))
            .await
            .expect("the server accepts WebSockets");
        Self(socket)
    }

    /// Connects and registers with two slots.
    pub(crate) async fn register(server: &TestServer, id: &str) -> Self {
        let mut node = Self::connect(server).await;
        node.send(json!({
            "type": "register", "node_id": id, "max_concurrent_jobs": 2,
            "asr_langs": ["zh", "en"], "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"],
        }))
        .await;
        assert_eq!(node.message().await["type"], "registered");
        node
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_frame(Message::text(message.to_string())).await;
    }

    pub(crate) async fn send_frame(&mut self, frame: Message) {
        self.0.send(frame).await.expect("the socket is open");
    }

    /// The next frame that is no ping.
    pub(crate) async fn frame(&mut self) -> Option<Message> {
        within(async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(frame)) => return Some(frame),
                    Some(Err(_)) | None => return None,
                }
            }
        })
        .await
    }

    /// The next message, which has to be text.
    pub(crate) async fn message(&mut self) -> Value {
        let frame = self.frame().await.expect("the socket is open");
        serde_json::from_str(frame.to_text().expect("text")).expect("JSON")
    }

    /// Receives a job and accepts it.
    pub(crate) async fn accept(&mut self) -> Value {
        let assign = self.message().await;
        assert_eq!(assign["type"], "job_assign", "{assign}");
        self.report("job_ack", &assign, json!({})).await;
        assign
    }

    /// Reports about a job.
    pub(crate) async fn report(&mut self, kind: &str, assign: &Value, fields: Value) {
        let mut message = json!({
            "type": kind, "job_id": assign["job_id"], "attempt_id": assign["attempt_id"],
        });
        for (name, value) in fields.as_object().unwrap() {
            message[name] = value.clone();
        }
        self.send(message).await;
    }

    pub(crate) async fn finish(&mut self, assign: &Value) {
        self.report("job_done", assign, json!({"result": {"text_translated": "hello"}})).await;
    }

    /// Does every job from now on.
    pub(crate) fn work(mut self) {
        tokio::spawn(async move {
            while let Some(frame) = self.frame().await {
                let message: Value = serde_json::from_str(frame.to_text().unwrap()).unwrap();
                if message["type"] == "job_assign" {
                    self.report("job_ack", &message, json!({})).await;
                    self.finish(&message).await;
                }
            }
        });
    }
}
