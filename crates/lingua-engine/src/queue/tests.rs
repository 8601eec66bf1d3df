use lingua_core::{Capabilities, Lang, LangSet, Nmt, ServiceSet, TenantRules};

use super::*;

fn node(langs: &str) -> Profile {
    let set = || langs.split(' ').map(|tag| Lang::new(tag).unwrap()).collect::<LangSet>();
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL).unwrap();
    Profile::new(caps, 1, true).unwrap()
}

fn request(pair: &str) -> SlotRequest {
    request_of("default", pair)
}

fn request_of(tenant: &str, pair: &str) -> SlotRequest {
    let (needs, tenant) = (Needs::SPEECH_TO_TEXT, Tenant::new(tenant).unwrap());
    let class = JobClass { needs, public: true, is_restricted: false, tenant };
    SlotRequest { pair: pair.parse().unwrap(), only: None, class }
}

fn free(queue: &Queue, langs: &str) {
    queue.wake_node(&NodeId::new("n").unwrap(), &node(langs));
}

/// Whether a new job would wait behind another.
fn waits(queue: &Arc<Queue>, request: &SlotRequest, priority: i32) -> bool {
    queue.enter(request, Some(priority)).is_none()
}

fn job() -> Arc<LiveJob> {
    Arc::new(LiveJob::at_start(1))
}

fn queue() -> Arc<Queue> {
    let rules = |weight| TenantRules { weight, ..TenantRules::default() };
    let heavy = (Tenant::new("heavy").unwrap(), rules(2));
    Queue::new(SemanticRule::Source, TenantTable::new([heavy]))
}

fn is_woken(ticket: &Ticket) -> bool {
    let queues = ticket.queue.queues.lock();
    let QueuePlace { position, class, key } = &ticket.place;
    queues.by_pair[key].by_class[class][position].woken
}

#[test]
fn the_longest_waiting_job_that_the_node_can_serve_is_woken() {
    let queue = queue();
    let (french, _) = queue.park(request("fr:en"), 0, job());
    let (first, _) = queue.park(request("zh:en"), 0, job());
    let (second, _) = queue.park(request("zh:en"), 0, job());
    free(&queue, "zh en");
    assert!(is_woken(&first) && !is_woken(&second) && !is_woken(&french));
    free(&queue, "zh en fr");
    assert!(is_woken(&french), "it has waited longest");
    assert!(!is_woken(&second));
}

#[test]
fn a_job_that_waits_for_one_node_holds_nobody_up() {
    let queue = queue();
    let n1 = NodeId::new("n1").unwrap();
    let strict = SlotRequest { only: Some(n1.clone()), ..request("zh:en") };
    let (ticket, _) = queue.park(strict.clone(), 9, job());
    assert!(!waits(&queue, &request("zh:en"), 0) && waits(&queue, &strict, 0));
    let (open, _) = queue.park(request("zh:en"), 0, job());
    free(&queue, "zh en");
    assert!(!is_woken(&ticket) && is_woken(&open));
    queue.wake_node(&n1, &node("zh en"));
    assert!(is_woken(&ticket));
}

#[test]
fn a_job_with_a_regional_tag_is_woken_by_a_node_of_the_language() {
    let queue = queue();
    let (regional, _) = queue.park(request("zh-CN:en-US"), 0, job());
    queue.wake_for(&node("zh-TW en"));
    let n1 = NodeId::new("n1").unwrap();
    let held = request("zh:en").class;
    queue.wake_like(&n1, "zh-TW:en".parse().unwrap(), &held);
    assert!(!is_woken(&regional));
    queue.wake_for(&node("zh en"));
    assert!(is_woken(&regional));
    regional.take_wake();
    queue.wake_like(&n1, "zh:en-US".parse().unwrap(), &held);
    assert!(is_woken(&regional));
}

#[test]
fn a_higher_priority_goes_first() {
    let queue = queue();
    let (usual, usual_is_first) = queue.park(request("zh:en"), 0, job());
    let (urgent, urgent_is_first) = queue.park(request("zh:en"), 5, job());
    let (late, late_is_first) = queue.park(request("zh:en"), 5, job());
    assert!(usual_is_first && urgent_is_first && !late_is_first);
    drop(late);
    assert!(waits(&queue, &request("zh:en"), 5) && !waits(&queue, &request("zh:en"), 6));
    free(&queue, "zh en");
    assert!(is_woken(&urgent) && !is_woken(&usual));
}

#[test]
fn an_unused_wake_is_passed_on() {
    let queue = queue();
    let (first, _) = queue.park(request("zh:en"), 0, job());
    let (second, _) = queue.park(request("zh:en"), 0, job());
    free(&queue, "zh en");
    drop(first);
    assert!(is_woken(&second));
    drop(second);
    assert_eq!(queue.len(), 0);
}

#[test]
fn a_used_wake_is_not_passed_on() {
    let queue = queue();
    let (first, _) = queue.park(request("zh:en"), 0, job());
    let (second, _) = queue.park(request("zh:en"), 0, job());
    free(&queue, "zh en");
    first.take_wake();
    drop(first);
    assert!(!is_woken(&second));
}

#[test]
fn slots_that_are_left_free_are_passed_on_once() {
    let queue = queue();
    let (first, _) = queue.park(request("zh:en"), 0, job());
    let (second, _) = queue.park(request("zh:en"), 0, job());
    let (third, _) = queue.park(request("zh:en"), 0, job());
    let (fourth, _) = queue.park(request("zh:en"), 0, job());
    drop(first.leave_with_slot(true));
    assert!(is_woken(&second) && !is_woken(&third));
    drop(fourth.leave_with_slot(true));
    assert!(!is_woken(&third), "the second searches first");
    second.take_wake();
    drop(second.leave_with_slot(true));
    assert!(is_woken(&third));
}

#[test]
fn a_tenant_without_slots_goes_before_the_backlog_of_another() {
    let queue = queue();
    let _held: Vec<_> = (0..4).map(|_| queue.count(request("zh:en").class.tenant)).collect();
    let backlog: Vec<_> = (0..3).map(|_| queue.park(request("zh:en"), 9, job()).0).collect();
    let light = request_of("light", "zh:en");
    assert!(!waits(&queue, &light, 0) && queue.enter(&light, None).is_some());
    let (first, is_first) = queue.park(light.clone(), 0, job());
    assert!(is_first && waits(&queue, &light, 0), "it does not overtake its own");
    first.found_none(false);
    free(&queue, "zh en");
    assert!(is_woken(&first) && !is_woken(&backlog[0]), "whatever the priorities");
    free(&queue, "zh en");
    assert!(is_woken(&backlog[0]) && !is_woken(&backlog[1]));
}

#[test]
fn a_tenant_above_its_share_waits_behind_the_others() {
    let queue = queue();
    let held = queue.count(request("zh:en").class.tenant);
    let (light, _) = queue.park(request_of("light", "zh:en"), 0, job());
    light.found_none(false);
    assert!(waits(&queue, &request("zh:en"), 9), "even with priority");
    assert!(queue.enter(&request("zh:en"), None).is_none(), "even if it cannot wait");
    assert!(!waits(&queue, &request("fr:en"), 0), "nobody waits for that pair");
    let mut private = request("zh:en");
    private.class.public = false;
    assert!(!waits(&queue, &private, 0), "its own nodes are its own");
    drop(held);
    drop(light);
    assert!(!waits(&queue, &request("zh:en"), 0));
}

#[test]
fn slots_that_come_free_together_are_shared_by_weight() {
    let queue = queue();
    let park = |tenant| queue.park(request_of(tenant, "zh:en"), 0, job()).0;
    let usual: Vec<_> = (0..9).map(|_| park("usual")).collect();
    let heavy: Vec<_> = (0..9).map(|_| park("heavy")).collect();
    usual.iter().chain(&heavy).for_each(|ticket| ticket.found_none(false));
    (0..9).for_each(|_| free(&queue, "zh en"));
    let woken = |tickets: &[Ticket]| tickets.iter().filter(|ticket| is_woken(ticket)).count();
    assert_eq!((woken(&usual), woken(&heavy)), (3, 6));
    drop((usual, heavy));
    let queues = queue.queues.lock();
    assert_eq!(queues.shares.running(Tenant::new("heavy").unwrap()), 0);
}

#[test]
fn a_wake_that_a_restricted_job_cannot_use_is_passed_on() {
    let queue = queue();
    let _held = queue.count(request("zh:en").class.tenant);
    let mut restricted = request_of("light", "zh:en");
    restricted.class.is_restricted = true;
    let (restricted, _) = queue.park(restricted, 0, job());
    restricted.found_none(false);
    assert!(!waits(&queue, &request("zh:en"), 0), "the free slots may not be for it");
    let (usual, _) = queue.park(request("zh:en"), 0, job());
    free(&queue, "zh en");
    assert!(is_woken(&restricted) && !is_woken(&usual));
    restricted.take_wake();
    restricted.found_none(true);
    assert!(is_woken(&usual));
}

#[test]
fn a_slot_of_a_node_elsewhere_goes_to_a_job_that_asks_for_no_more_than_the_last() {
    let queue = queue();
    let class = request("zh:en").class;
    let park = |class| queue.park(SlotRequest { class, ..request("zh:en") }, 0, job()).0;
    let private = park(JobClass { public: false, ..class });
    let spoken = park(JobClass { needs: Needs::SPEECH_TO_SPEECH, ..class });
    let usual = park(class);
    let n1 = NodeId::new("n1").unwrap();
    let freed = |held: JobClass| queue.wake_like(&n1, "zh:en".parse().unwrap(), &held);
    freed(class);
    assert!(is_woken(&usual) && !is_woken(&private) && !is_woken(&spoken));
    let other = Tenant::new("other").unwrap();
    freed(JobClass { public: false, tenant: other, ..class });
    assert!(is_woken(&private) && is_woken(&spoken), "nobody fits for sure, so each may try");
}

#[test]
fn the_regular_look_wakes_private_jobs_of_every_tenant() {
    let queue = queue();
    let private_of = |tenant| {
        let mut request = request_of(tenant, "zh:en");
        request.class.public = false;
        queue.park(request, 0, job()).0
    };
    let _held = queue.count(Tenant::new("busy").unwrap());
    let (busy, idle) = (private_of("busy"), private_of("idle"));
    busy.found_none(false);
    idle.found_none(false);
    queue.wake_heads();
    assert!(is_woken(&idle) && is_woken(&busy), "they do not compete: each has nodes of its own");
}
