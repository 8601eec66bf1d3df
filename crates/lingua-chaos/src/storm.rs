//! What goes wrong: instances, nodes and the store are killed, stopped and paused, and come back.
//!
//! Start at [`rage`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::task::{JoinHandle, JoinSet};

use crate::{INSTANCES, Options, World, luck};

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    InstanceKilled(usize),
    InstancePaused(usize),
    InstanceStopped(usize),
    NodeKilled(usize),
    NodePaused(usize),
    StoreKilled,
    StorePaused,
}

impl Fault {
    /// Weights: what there is more of goes wrong more often.
    fn draw(luck: &mut ChaCha8Rng, nodes: usize) -> Self {
        let (instance, node) = (luck.random_range(0..INSTANCES), luck.random_range(0..nodes));
        match luck.random_range(0..20) {
            0..4 => Self::InstanceKilled(instance),
            4..7 => Self::InstancePaused(instance),
            7 => Self::InstanceStopped(instance),
            8..13 => Self::NodeKilled(node),
            13..17 => Self::NodePaused(node),
            17 => Self::StoreKilled,
            _ => Self::StorePaused,
        }
    }

    /// What it happens to: one thing at a time happens to each.
    fn target(self) -> (u8, usize) {
        match self {
            Self::InstanceKilled(n) | Self::InstancePaused(n) | Self::InstanceStopped(n) => (0, n),
            Self::NodeKilled(n) | Self::NodePaused(n) => (1, n),
            Self::StoreKilled | Self::StorePaused => (2, 0),
        }
    }

    /// The kind, for the table.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::InstanceKilled(_) => "instance killed (-9)",
            Self::InstancePaused(_) => "instance paused (STOP)",
            Self::InstanceStopped(_) => "instance stopped (TERM)",
            Self::NodeKilled(_) => "node killed",
            Self::NodePaused(_) => "node paused",
            Self::StoreKilled => "Redis killed (-9)",
            Self::StorePaused => "Redis paused (STOP)",
        }
    }

    async fn strike(self, world: &World) {
        match self {
            Self::InstanceKilled(n) => world.instances[n].kill().await,
            Self::InstancePaused(n) => world.instances[n].signal("STOP").await,
            Self::InstanceStopped(n) => world.instances[n].terminate().await,
            Self::NodeKilled(n) => world.fleet.kill(n),
            Self::NodePaused(n) => world.fleet.hold(n, true),
            Self::StoreKilled => world.redis.kill().await,
            Self::StorePaused => world.redis.signal("STOP").await,
        }
    }

    async fn heal(self, world: &World) {
        let started = match self {
            Self::InstanceKilled(n) | Self::InstanceStopped(n) => world.instances[n].start().await,
            Self::StoreKilled => world.redis.restart().await,
            Self::InstancePaused(n) => {
                world.instances[n].signal("CONT").await;
                Ok(())
            }
            Self::StorePaused => {
                world.redis.signal("CONT").await;
                Ok(())
            }
            Self::NodeKilled(n) => {
                world.fleet.start(n);
                Ok(())
            }
            Self::NodePaused(n) => {
                world.fleet.hold(n, false);
                Ok(())
            }
        };
        if let Err(error) = started {
            world.broke(format!("{self} does not come back: {error:#}"));
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target() {
            (0, n) => write!(f, "i{n}: {}", self.kind()),
            (1, n) => write!(f, "node-{n}: {}", self.kind()),
            _ => f.write_str(self.kind()),
        }
    }
}

/// Lets things go wrong until all clients have asked, and waits until the last of them is over.
pub(crate) async fn rage(world: &Arc<World>, options: &Options, speaking: &JoinHandle<()>) {
    let mut luck = luck(options.seed, 3);
    let mut going_on: JoinSet<(u8, usize)> = JoinSet::new();
    let mut struck = vec![];
    while !world.clients.all_have_asked() && !speaking.is_finished() {
        let mean_ms = options.fault_every_ms;
        let pause_ms = luck.random_range(mean_ms / 2..=mean_ms * 3 / 2);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        while let Some(Ok(target)) = going_on.try_join_next() {
            struck.retain(|other| *other != target);
        }
        let fault = Fault::draw(&mut luck, world.fleet.len());
        let away_ms = luck.random_range(200..=4_000);
        if struck.contains(&fault.target()) {
            continue;
        }
        struck.push(fault.target());
        let world = Arc::clone(world);
        going_on.spawn(async move {
            let at_ms = world.now_ms();
            world.note(format!("{fault}, for {away_ms} ms"));
            fault.strike(&world).await;
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            fault.heal(&world).await;
            let healed_ms = world.now_ms();
            world.note(format!("{fault} is over"));
            world.notes.lock().faults.push((fault, at_ms, healed_ms));
            fault.target()
        });
    }
    going_on.join_all().await;
}

/// Sees to it that everything is there.
pub(crate) async fn calm(world: &Arc<World>) {
    for n in 0..world.instances.len() {
        Fault::InstanceKilled(n).heal(world).await;
    }
    for n in 0..world.fleet.len() {
        world.fleet.start(n);
        world.fleet.hold(n, false);
    }
}
