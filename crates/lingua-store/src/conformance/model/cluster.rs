//! Leader, table and instances, as the contract has them.

use lingua_core::{InstanceId, Term};

use super::{Leader, Model};
use crate::contract::{
    AnnounceReply, AnnounceRequest, Change, ElectReply, ElectRequest, Incarnation, InstanceRecord,
    PublishReply, PublishRequest, PublishedTable,
};

impl Model {
    fn holds(&self, instance: &InstanceId, term: Term) -> bool {
        let leader = self.leader.as_ref().filter(|leader| leader.until_ms >= self.now_ms);
        term == self.last_term && leader.is_some_and(|leader| leader.instance == *instance)
    }

    /// Holds an election against the rules, and takes over who won.
    pub fn check_elect(&mut self, candidate: &ElectRequest, election: &ElectReply) {
        let wanted_ms = self.now_ms + candidate.lease_ms;
        let now_ms = self.now_ms;
        let Some(leader) = self.leader.as_mut().filter(|leader| leader.until_ms >= now_ms) else {
            // No instance leads: the candidate must win, in a later term.
            let ElectReply::Leading { term, until_ms } = *election else {
                panic!("no instance leads, yet {candidate:?} got {election:?}")
            };
            assert!(term > self.last_term, "invariant 10: terms rise");
            assert_eq!(until_ms, wanted_ms);
            self.last_term = term;
            let ElectRequest { instance, incarnation, .. } = candidate.clone();
            self.leader = Some(Leader { instance, incarnation, until_ms });
            self.feed.push(Change::Leader(term));
            return;
        };
        let term = self.last_term;
        let itself =
            leader.instance == candidate.instance && leader.incarnation == candidate.incarnation;
        if itself {
            leader.until_ms = leader.until_ms.max(wanted_ms);
        }
        let until_ms = leader.until_ms;
        let expected = match itself {
            true => ElectReply::Leading { term, until_ms },
            false => ElectReply::Following { leader: leader.instance.clone(), term, until_ms },
        };
        assert_eq!(*election, expected);
    }

    /// What resigning must answer.
    pub fn expect_resign(&mut self, instance: &InstanceId, term: Term) -> bool {
        let held = self.holds(instance, term);
        if held {
            self.leader = None;
        }
        held
    }

    /// What publishing must answer. Invariant 10: only the present term, one version at a time.
    pub fn expect_publish(&mut self, publish: &PublishRequest) -> PublishReply {
        if !self.holds(&publish.instance, publish.term) {
            return PublishReply::NotLeader;
        }
        let version = self.table.as_ref().map_or(0, |table| table.version);
        if version != publish.replaces {
            return PublishReply::Conflict(version);
        }
        self.table = Some(PublishedTable {
            version: version + 1,
            term: publish.term,
            published_ms: self.now_ms,
            table: publish.table.clone(),
        });
        self.feed.push(Change::Table(version + 1));
        PublishReply::Published(version + 1)
    }

    /// The table that must be out.
    pub fn expect_table(&self) -> Option<PublishedTable> {
        self.table.clone()
    }

    /// What an announcement must answer.
    pub fn expect_announce(&mut self, p: &AnnounceRequest) -> AnnounceReply {
        let now_ms = self.now_ms;
        let view = InstanceRecord {
            instance: p.instance.clone(),
            incarnation: p.incarnation,
            address: p.address.clone(),
            until_ms: now_ms + p.lease_ms,
            alive: true,
        };
        let known = self.instances.iter_mut().find(|i| i.instance == p.instance);
        let is_news = match known {
            Some(known) => {
                let alive = known.until_ms >= now_ms;
                let same = known.incarnation == p.incarnation;
                if alive && !same {
                    return AnnounceReply::NameTaken { until_ms: known.until_ms };
                }
                *known = view;
                !alive || !same
            }
            None => {
                self.instances.push(view);
                true
            }
        };
        if is_news {
            self.feed.push(Change::Instance(p.instance.clone()));
        }
        AnnounceReply::Present
    }

    /// What withdrawing must answer.
    pub fn expect_withdraw(&mut self, instance: &InstanceId, incarnation: Incarnation) -> bool {
        let before = self.instances.len();
        self.instances.retain(|i| i.instance != *instance || i.incarnation != incarnation);
        let known = self.instances.len() < before;
        if known {
            self.feed.push(Change::Instance(instance.clone()));
        }
        known
    }

    /// The instances that must be listed.
    pub fn expect_instances(&self) -> Vec<InstanceRecord> {
        let mut all: Vec<InstanceRecord> = self
            .instances
            .iter()
            .map(|i| InstanceRecord { alive: i.until_ms >= self.now_ms, ..i.clone() })
            .collect();
        all.sort_by(|a, b| a.instance.cmp(&b.instance));
        all
    }
}
