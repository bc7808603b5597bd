use super::state::{MOST, MOST_OF_ONE};
use super::*;
use crate::tool::PLACES;
use crate::tool::PlaceKind::Check;
use ebs_csi_wire::{
    Disk, Done, Expand, FsType, Inspect, KubeletPath, Origin, Source, Stage, Stats, Unpublish,
    Usage, VolumeId,
};

fn unpublish(volume: &str, target: &str) -> Operation {
    Operation::Unpublish(Unpublish {
        volume: VolumeId::parse(volume).expect("id"),
        target: KubeletPath::parse(target).expect("path"),
    })
}

fn stats(volume: &str) -> Operation {
    Operation::Stats(Stats {
        volume: VolumeId::parse(volume).expect("id"),
        path: KubeletPath::parse("/k/a").expect("path"),
    })
}

fn stage(volume: &str) -> Operation {
    Operation::Stage(Stage {
        disk: Disk {
            volume: VolumeId::parse(volume).expect("id"),
            device_hint: None,
            partition: None,
            size_at_attach: None,
            attached_at: None,
            origin: Origin::Unknown,
            source: Source::Elsewhere,
        },
        staging: KubeletPath::parse("/k/a").expect("path"),
        fs: FsType::Ext4,
        read_only: false,
        flags: Vec::new(),
        format: Vec::new(),
    })
}

fn table() -> OperationTable {
    OperationTable::new(Arc::default(), WakeEvent::new().expect("eventfd"))
}

/// Returns the asker of a request on this connection.
fn of(connection: u64) -> RequestKey {
    RequestKey { connection, id: 7 }
}

fn numbered(n: usize) -> String {
    format!("vol-{n:017x}")
}

const A: &str = "vol-00000000000000001";
const B: &str = "vol-00000000000000002";
const LONG: Duration = Duration::from_secs(30);
const DONE: Outcome = Outcome::Done(Done { already: false, copied: false });
const PENDING: Submitted = Submitted::Answer(Outcome::Pending);

fn busy() -> Submitted {
    Submitted::Answer(Refusal::Busy.into())
}

#[test]
fn a_repeated_request_joins_the_running_operation() {
    let table = table();
    assert_eq!(table.submit(unpublish(A, "/k/a"), false, of(1)), PENDING);
    let work = table.take().expect("work");
    let again = table.submit(unpublish(A, "/k/a"), true, of(2));
    assert_eq!(again, Submitted::Later);
    assert_eq!(table.running().len(), 1);
    assert!(table.answers().is_empty());
    table.finish(&work, &DONE);
    assert_eq!(table.answers(), [(of(2), DONE)]);
    assert!(table.running().is_empty());
}

/// The table admits a waiting request when the preceding operation ends, and answers Busy when the
/// request's connection gives up.
#[test]
fn second_request_for_volume_waits_or_gets_busy() {
    let table = table();
    table.submit(unpublish(A, "/k/a"), false, of(1));
    assert_eq!(table.submit(unpublish(A, "/k/b"), false, of(2)), busy());
    for connection in [2, 3] {
        let other = table.submit(unpublish(A, "/k/b"), true, of(connection));
        assert_eq!(other, Submitted::Later);
    }
    assert_eq!(table.stop_waiting(2), Some(Refusal::Busy.into()));
    assert_eq!(table.stop_waiting(2), None);
    assert_eq!(table.submit(unpublish(B, "/k/b"), false, of(2)), PENDING);
    // A waiting request is admitted when the preceding operation has ended.
    let first = table.take().expect("work");
    table.take().expect("the other volume");
    table.finish(&first, &DONE);
    let work = table.take().expect("work");
    assert_eq!(*work.operation(), unpublish(A, "/k/b"));
    assert_eq!(table.stop_waiting(3), Some(Outcome::Pending));
    table.finish(&work, &DONE);
    assert!(table.answers().is_empty());
}

#[test]
fn stats_does_not_wait_for_running_unpublish() {
    let table = table();
    table.submit(unpublish(A, "/k/a"), false, of(1));
    assert_eq!(table.submit(stats(A), true, of(2)), Submitted::Later);
    let change = table.take().expect("the change");
    let look = table.take().expect("the look");
    assert!(matches!(look.operation(), Operation::Stats(_)));
    let usage = Outcome::Usage(Usage::default());
    table.finish(&look, &usage);
    assert_eq!(table.answers(), [(of(2), usage)]);
    table.finish(&change, &DONE);
}

#[test]
fn hanging_operations_do_not_starve_other_classes() {
    let table = table();
    for n in 0..20 {
        let (volume, connection) = (numbered(n), u64::try_from(n).expect("small"));
        table.submit(stats(&volume), false, of(connection));
        table.submit(stage(&volume), false, of(connection));
    }
    let idle = |class: WorkerClass| {
        let state = table.lock();
        state.taken[class.index()] == workers_of(class) || state.ready[class.index()].is_empty()
    };
    // Takes all workers of both classes: none of these operations ends.
    while !(idle(WorkerClass::Look) && idle(WorkerClass::Disk)) {
        table.take().expect("work");
    }
    let hanging: usize = table.lock().taken.iter().sum();
    assert_eq!(hanging, workers_of(WorkerClass::Look) + workers_of(WorkerClass::Disk));
    table.submit(unpublish(&numbered(99), "/k/b"), true, of(99));
    let inspect = Operation::Inspect(Inspect::default());
    table.submit(inspect, true, of(99));
    assert!(matches!(
        table.take().expect("work").operation(),
        Operation::Inspect(_) | Operation::Unpublish(_)
    ));
    table.take().expect("work");
    assert!(hanging + 2 < workers());
}

#[test]
fn concurrent_inspect_requests_are_not_joined() {
    let table = table();
    for connection in 0..2 {
        let inspect = Operation::Inspect(Inspect::default());
        table.submit(inspect, true, of(connection));
    }
    let first = table.take().expect("work");
    table.finish(&first, &DONE);
    assert_eq!(table.answers().len(), 1);
    table.take().expect("the second one");
}

#[test]
fn pending_operations_are_bounded_per_connection_and_class() {
    let table = table();
    let mut next = 0;
    let mut full = |connection: u64| {
        let mut taken = 0;
        loop {
            next += 1;
            match table.submit(stage(&numbered(next)), false, of(connection)) {
                PENDING => taken += 1,
                other => {
                    assert_eq!(other, busy());
                    return taken;
                }
            }
        }
    };
    let first = full(1);
    assert_eq!(first, MOST_OF_ONE);
    let others: usize = (2..10).map(&mut full).sum();
    assert_eq!(first + others, MOST);
    // Other classes have their own capacity.
    let other = table.submit(unpublish(A, "/k/x"), false, of(1));
    assert_eq!(other, busy(), "that volume is being staged");
    let other = table.submit(unpublish(&numbered(99_999), "/k/x"), false, of(1));
    assert_eq!(other, PENDING);
}

#[test]
fn busy_connection_does_not_delay_other_connection() {
    let table = table();
    for n in 0..100 {
        table.submit(stage(&numbered(n)), false, of(1));
    }
    let first = table.take().expect("work");
    table.submit(stage(&numbered(1000)), false, of(2));
    let work = table.take().expect("work");
    assert_eq!(*work.operation(), stage(&numbered(1000)));
    assert_eq!(*first.operation(), stage(&numbered(0)));
}

#[test]
fn operation_without_free_tool_place_holds_no_worker() {
    let table = table();
    for n in 0..6 {
        table.submit(stage(&numbered(n)), true, of(1));
    }
    let (go_on, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    thread::scope(|scope| {
        let holding: Vec<_> = (0..PLACES)
            .map(|_| {
                scope.spawn(|| {
                    let work = table.take().expect("work");
                    assert!(table.places.take(Check));
                    held.lock().expect("lock").recv().expect("a word");
                    table.finish(&work, &DONE);
                })
            })
            .collect();
        while table.places.is_available(Check) {
            thread::yield_now();
        }
        for _ in 0..2 {
            let work = table.take().expect("work");
            assert!(!table.places.take(Check));
            table.park(&work, Check);
        }
        assert_eq!(table.lock().taken.iter().sum::<usize>(), 4);
        for _ in 0..4 {
            go_on.send(()).expect("a listener");
        }
        for one in holding {
            one.join().expect("join");
        }
        // Both operations have a tool place now. They run one after the other, because this thread
        // is a single worker.
        for _ in 0..2 {
            let work = table.take().expect("work");
            assert!(table.places.take(Check));
            table.finish(&work, &DONE);
        }
    });
    assert_eq!(table.answers().len(), 6);
    for _ in 0..PLACES {
        assert!(table.places.reserve(Check), "a place is lost");
    }
}

/// Shutdown waits until no caller is connected, callers send no request for a while, or the time
/// limit is over.
#[test]
fn ending_table_serves_callers_and_refuses_long_operations() {
    let table = table();
    let caller = table.caller();
    for _ in 0..PLACES {
        assert!(table.places.reserve(Check));
    }
    table.submit(stage(&numbered(77)), true, of(5));
    let parked = table.take().expect("work");
    table.park(&parked, Check);
    thread::scope(|scope| {
        let serving = scope.spawn(|| table.serve_until_quiet(LONG, LONG));
        while !table.lock().ending {
            thread::yield_now();
        }
        // The operation that waits for a tool place had no effect yet.
        assert_eq!(table.answers(), [(of(5), Refusal::Busy.into())]);
        let expand = Operation::Expand(Expand {
            volume: VolumeId::parse(B).expect("id"),
            path: KubeletPath::parse("/k/b").expect("path"),
            required_bytes: None,
            limit_bytes: None,
        });
        assert_eq!(table.submit(expand, true, of(1)), busy());
        assert_eq!(table.submit(unpublish(A, "/k/a"), false, of(1)), PENDING);
        assert!(!serving.is_finished());
        drop(caller);
        serving.join().expect("join");
    });
    // Shutdown ends when no caller is connected, and when no caller disconnects in time.
    table.serve_until_quiet(LONG, LONG);
    let _caller = table.caller();
    table.serve_until_quiet(LONG, Duration::ZERO);
    // Shutdown also ends when a connected caller sends no request.
    table.note_request();
    table.serve_until_quiet(Duration::from_millis(1), LONG);
}

#[test]
fn drained_table_finishes_admitted_work_and_refuses_more() {
    let table = table();
    table.submit(unpublish(A, "/k/a"), false, of(1));
    thread::scope(|scope| {
        let drained = scope.spawn(|| table.drain(LONG));
        let work = table.take().expect("work");
        table.finish(&work, &DONE);
        assert!(drained.join().expect("join"));
    });
    assert!(table.take().is_none());
    let late = table.submit(unpublish(B, "/k/b"), true, of(1));
    assert_eq!(late, Submitted::Closed);
}

#[test]
fn worker_that_waited_last_gets_next_operation() {
    let table = table();
    let by = Mutex::new(Vec::new());
    let wait_until = |condition: &dyn Fn(&TableState) -> bool| {
        while !condition(&table.lock()) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(work) = table.take() {
                    by.lock().expect("lock").push(thread::current().id());
                    table.finish(&work, &DONE);
                }
            });
        }
        for n in 0..5 {
            wait_until(&|state| state.idle.len() == 3);
            table.submit(unpublish(&numbered(n), "/k/a"), false, of(1));
            wait_until(&|state| state.runs.is_empty());
        }
        assert!(table.drain(LONG));
    });
    let by = by.into_inner().expect("lock");
    assert!(by.len() == 5 && by.iter().all(|id| *id == by[0]), "{by:?}");
}
