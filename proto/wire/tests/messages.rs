//! Every message survives encoding and decoding, and other bytes are refused.

use std::num::{NonZeroI32, NonZeroU8, NonZeroU32, NonZeroU64};
use std::time::Duration;

use ebs_csi_wire::*;
use proptest::prelude::*;
use proptest::sample::select;

fn volume() -> impl Strategy<Value = VolumeId> {
    prop_oneof!["vol-[0-9a-f]{17}", "vol-[0-9a-f]{8}"]
        .prop_map(|text| VolumeId::parse(&text).expect("of an id's shape"))
}

fn path() -> impl Strategy<Value = KubeletPath> {
    "(/[a-zA-Z0-9_~é -]{1,40}){1,8}"
        .prop_map(|text| KubeletPath::parse(&text).expect("of a path's shape"))
}

fn flag() -> impl Strategy<Value = MountFlag> {
    ("[a-z0-9_.-]{1,64}", proptest::option::of("[!#-&(-\\[\\]-~]{1,255}")).prop_map(
        |(name, value)| MountFlag::new(&name, value.as_deref()).expect("spelled as a flag"),
    )
}

fn format() -> impl Strategy<Value = Vec<FormatOption>> {
    let option = any::<(u32, u64)>().prop_map(|(number, value)| FormatOption { number, value });
    proptest::collection::vec(option, 0..20)
}

fn disk() -> impl Strategy<Value = Disk> {
    (
        volume(),
        proptest::option::of("/dev/(xvd|sd)[a-z]{1,2}[0-9]{0,2}"),
        0..=255_u32,
        any::<u64>(),
        select(Origin::ALL),
        select(Source::ALL),
    )
        .prop_map(|(volume, hint, partition, size, origin, source)| Disk {
            volume,
            device_hint: hint.map(|hint| DeviceName::parse(&hint).expect("of a name's shape")),
            partition: NonZeroU32::new(partition),
            size_at_attach: NonZeroU64::new(size),
            origin,
            source,
        })
}

fn operation() -> impl Strategy<Value = Operation> {
    let flags = || {
        proptest::collection::vec(flag(), 0..=32).prop_map(|mut flags| {
            while MountFlag::check_list(&flags).is_err() {
                flags.pop();
            }
            flags
        })
    };
    prop_oneof![
        (1..=u32::MAX, any::<u32>(), 0..3, any::<[u8; 32]>()).prop_map(
            |(oldest, more, step, bytes)| Operation::Hello(Hello {
                oldest,
                newest: oldest.saturating_add(more),
                key: match step {
                    0 => KeyStep::None,
                    1 => KeyStep::Nonce(Nonce(bytes)),
                    _ => KeyStep::Proof(Proof(bytes)),
                },
            })
        ),
        (disk(), path(), select(FsType::ALL), any::<bool>(), flags(), format()).prop_map(
            |(disk, staging, fs, read_only, flags, format)| Operation::Stage(Stage {
                disk,
                staging,
                fs,
                read_only,
                flags,
                format,
            })
        ),
        (volume(), path())
            .prop_map(|(volume, staging)| Operation::Unstage(Unstage { volume, staging })),
        (disk(), path(), path(), any::<bool>(), flags()).prop_map(
            |(disk, staging, target, read_only, flags)| Operation::PublishFilesystem(
                PublishFilesystem { disk, staging, target, read_only, flags }
            )
        ),
        (disk(), path(), any::<bool>()).prop_map(|(disk, target, read_only)| {
            Operation::PublishBlock(PublishBlock { disk, target, read_only })
        }),
        (volume(), path())
            .prop_map(|(volume, target)| Operation::Unpublish(Unpublish { volume, target })),
        (volume(), path(), any::<u64>(), any::<u64>()).prop_map(
            |(volume, path, required, limit)| Operation::Expand(Expand {
                volume,
                path,
                required_bytes: NonZeroU64::new(required),
                limit_bytes: NonZeroU64::new(limit),
            })
        ),
        (volume(), path()).prop_map(|(volume, path)| Operation::Stats(Stats { volume, path })),
        volume().prop_map(|volume| Operation::NvmeStatistics(NvmeStatistics { volume })),
        any::<u32>().prop_map(|first| Operation::Inspect(Inspect { first })),
    ]
}

fn job() -> impl Strategy<Value = Job> {
    (any::<u8>(), any::<[u8; 16]>(), format(), any::<[u64; 2]>()).prop_map(
        |(tool, uuid, format, [time, deadline])| Job {
            tool,
            fs: FsType::Ext4,
            uuid,
            format,
            time,
            deadline,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    (any::<u64>(), any::<u32>(), operation()).prop_map(|(id, wait, operation)| Request {
        id,
        wait: Duration::from_millis(wait.into()),
        operation,
    })
}

fn seen() -> impl Strategy<Value = Observation> {
    prop_oneof![
        (select(Signature::ALL), select(ContentState::ALL))
            .prop_map(|(signature, state)| Observation::Content { signature, state }),
        any::<u64>().prop_map(|at| Observation::UnknownBytes { at }),
        path().prop_map(Observation::MountedAt),
        any::<u64>().prop_map(Observation::DiskBytes),
        Just(Observation::Copied),
        flag().prop_map(Observation::MountFlag),
        (select(FsType::ALL), any::<[u32; 4]>(), any::<u32>()).prop_map(|(fs, bits, minor)| {
            let [compatible, incompatible, read_only_compatible, block_bytes] = bits;
            let features =
                Features { fs, compatible, incompatible, read_only_compatible, block_bytes };
            let kernel = minor.is_multiple_of(2).then_some(KernelVersion { major: 6, minor });
            Observation::Lacking { features, kernel }
        }),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let tool = prop_oneof![
        Just(None),
        any::<NonZeroU8>().prop_map(|status| Some(ToolEnd::Exited(status))),
        (1..=64_u8).prop_map(|signal| NonZeroU8::new(signal).map(ToolEnd::Signalled)),
    ];
    let held = (volume(), path(), any::<[bool; 3]>()).prop_map(
        |(volume, path, [read_only, staged, by_name])| HeldVolume {
            volume,
            path,
            read_only,
            staged,
            by_name,
        },
    );
    let running = (volume(), select(OperationKind::ALL), any::<u64>())
        .prop_map(|(volume, kind, running_ms)| RunningOperation { volume, kind, running_ms });
    prop_oneof![
        (1..=u32::MAX, "[!-~]{1,64}", "[0-9a-f]{64}", any::<bool>(), any::<Option<u32>>())
            .prop_map(|(version, release, policy_digest, sandbox, landlock)| {
                Outcome::Welcome(Welcome { version, release, policy_digest, sandbox, landlock })
            }),
        any::<[[u8; 32]; 2]>().prop_map(|[nonce, proof]| Outcome::Challenge(Challenge {
            nonce: Nonce(nonce),
            proof: Proof(proof),
        })),
        (any::<[bool; 7]>(), any::<u64>()).prop_map(|(did, device_bytes)| Outcome::Staged(
            Staged {
                already: did[0],
                formatted: did[1],
                checked: did[2],
                repaired: did[3],
                grown: did[4],
                device_bytes,
                untold: did[5],
                replayed: did[6],
            }
        )),
        any::<[bool; 2]>().prop_map(|did| Outcome::Done(Done { already: did[0], copied: did[1] })),
        any::<[u64; 2]>().prop_map(|sizes| Outcome::Expanded(Expanded {
            device_bytes: sizes[0],
            filesystem_bytes: sizes[1],
        })),
        (any::<[bool; 3]>(), any::<[u64; 7]>()).prop_map(
            |([block, turned_read_only, shut_down], n)| Outcome::Usage(Usage {
                block,
                total_bytes: n[0],
                used_bytes: n[1],
                available_bytes: n[2],
                total_inodes: n[3],
                used_inodes: n[4],
                available_inodes: n[5],
                turned_read_only,
                shut_down,
                errors: n[6],
            })
        ),
        proptest::collection::vec(any::<u8>(), 0..=4096)
            .prop_map(|page| Outcome::LogPage(LogPage { page })),
        (
            proptest::collection::vec(held, 0..20),
            proptest::collection::vec(running, 0..20),
            any::<bool>()
        )
            .prop_map(|(volumes, operations, more)| Outcome::Inventory(Inventory {
                volumes,
                operations,
                more,
            })),
        (select(Refusal::ALL), proptest::option::of(seen()))
            .prop_map(|(reason, seen)| { Outcome::Refused(Refused { reason, seen }) }),
        (select(Step::ALL), 0..=4095_i32, tool, any::<Option<(u32, u32)>>(), 0..=0o7777_u32)
            .prop_map(|(step, errno, tool, owner, mode)| {
                Outcome::Failed(Failed {
                    step,
                    errno: NonZeroI32::new(errno),
                    tool,
                    node: owner.map(|(uid, gid)| Node { uid, gid, mode }),
                })
            }),
        Just(Outcome::Pending),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn encoded_request_decodes_unchanged(request in request()) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn encoded_job_decodes_unchanged(job in job()) {
        prop_assert_eq!(Job::decode(&job.encode()), Ok(job));
    }

    #[test]
    fn encoded_reply_decodes_unchanged(id in any::<u64>(), outcome in outcome()) {
        let reply = Reply { id, outcome };
        prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }

    #[test]
    fn message_accepted_from_arbitrary_bytes_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        // Accepted bytes need not be the bytes that encoding produces, but encoding leads back to
        // the same message.
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        if let Ok(reply) = Reply::decode(&bytes) {
            prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn damaged_request_never_panics_decoder(request in request(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = request.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let _ = Request::decode(&bytes);
        bytes.truncate(at);
        let _ = Request::decode(&bytes);
    }

    #[test]
    fn chunk_size_does_not_change_decoded_frames(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..8),
        piece in 1..50_usize,
    ) {
        let mut stream = Vec::new();
        for payload in &payloads {
            stream.extend(frame::framed(payload).expect("short enough"));
        }
        let mut buffer = Vec::new();
        let mut found = Vec::new();
        for part in stream.chunks(piece) {
            buffer.extend_from_slice(part);
            while let Some(payload) = frame::split(&mut buffer).expect("sound") {
                found.push(payload);
            }
        }
        prop_assert_eq!(found, payloads);
        prop_assert!(buffer.is_empty());
    }
}

#[test]
fn every_inventory_page_fits_in_frame() {
    let held: Vec<HeldVolume> = (0..2000_u32)
        .map(|n| HeldVolume {
            volume: VolumeId::parse(&format!("vol-{n:017x}")).expect("of an id's shape"),
            path: KubeletPath::parse(&format!("/{}", "é/".repeat(1 + n as usize % 1300) + "x"))
                .expect("of a path's shape"),
            read_only: true,
            staged: true,
            by_name: true,
        })
        .collect();
    let operations: Vec<RunningOperation> = (0..200)
        .map(|n: u32| RunningOperation {
            volume: VolumeId::parse(&format!("vol-{n:017x}")).expect("of an id's shape"),
            kind: OperationKind::Publish,
            running_ms: u64::MAX,
        })
        .collect();
    let mut seen = 0;
    loop {
        let first = u32::try_from(seen).expect("small");
        let page = Inventory::page(&held, &operations, first);
        assert!(!page.volumes.is_empty());
        assert_eq!(page.volumes[..], held[seen..seen + page.volumes.len()]);
        seen += page.volumes.len();
        let more = page.more;
        let reply = Reply { id: u64::MAX, outcome: Outcome::Inventory(page) };
        assert!(reply.encode().len() <= frame::MAX_FRAME);
        if !more {
            break;
        }
    }
    assert_eq!(seen, held.len());
    let beyond = Inventory::page(&held, &[], 5000);
    assert!(beyond.volumes.is_empty() && !beyond.more);
}

#[test]
fn the_longest_request_fits_a_frame() {
    let longest = KubeletPath::parse(&format!("/{}", "x/".repeat(2046) + "y")).expect("a path");
    assert_eq!(longest.as_str().len(), 4094);
    let flags = vec![MountFlag::new("a", Some(&"x".repeat(127))).expect("a flag"); 32];
    assert_eq!(MountFlag::check_list(&flags), Ok(()));
    let request = Request {
        id: u64::MAX,
        wait: Duration::MAX,
        operation: Operation::PublishFilesystem(PublishFilesystem {
            disk: Disk {
                volume: VolumeId::parse("vol-0123456789abcdef0").expect("an id"),
                device_hint: Some(DeviceName::parse("/dev/xvdzz99").expect("a name")),
                partition: NonZeroU32::new(255),
                size_at_attach: NonZeroU64::new(u64::MAX),
                origin: Origin::Copy,
                source: Source::Untold,
            },
            staging: longest.clone(),
            target: longest,
            read_only: true,
            flags,
        }),
    };
    assert!(frame::framed(&request.encode()).is_ok());
}
