//! Every message survives encoding and decoding, and other bytes are refused.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use ebs_csi_wire::*;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value,
};

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

fn flags() -> impl Strategy<Value = Vec<MountFlag>> {
    proptest::collection::vec(flag(), 0..=32).prop_map(|mut flags| {
        while MountFlag::check_list(&flags).is_err() {
            flags.pop();
        }
        flags
    })
}

fn pb_flag(flag: &MountFlag) -> pb::MountFlag {
    let value = flag.value().unwrap_or_default().to_owned();
    pb::MountFlag { name: flag.name().to_owned(), value }
}

fn dynamic(kind: &MessageDescriptor, message: &impl Message) -> DynamicMessage {
    let mut dynamic = DynamicMessage::new(kind.clone());
    dynamic.transcode_from(message).expect("a message of this kind");
    dynamic
}

fn typed(
    kind: &MessageDescriptor,
    messages: impl Strategy<Value = impl Message> + 'static,
) -> BoxedStrategy<DynamicMessage> {
    let kind = kind.clone();
    messages.prop_map(move |message| dynamic(&kind, &message)).boxed()
}

/// Returns messages of this kind, from the definition in `helper.proto`, as a correct peer sends
/// them.
fn message(kind: &MessageDescriptor) -> BoxedStrategy<DynamicMessage> {
    if let Some(messages) = message_with_related_fields(kind) {
        return messages;
    }
    let mut messages = Just(DynamicMessage::new(kind.clone())).boxed();
    let set = |(mut message, chosen): (DynamicMessage, Option<(FieldDescriptor, Value)>)| {
        if let Some((field, value)) = chosen {
            message.set_field(&field, value);
        }
        message
    };
    let chosen = |field: FieldDescriptor| {
        field_values(&field).prop_map(move |value| Some((field.clone(), value))).boxed()
    };
    for field in kind.fields() {
        let values = match field.containing_oneof() {
            None => chosen(field),
            Some(oneof) if oneof.is_synthetic() => prop_oneof![Just(None), chosen(field)].boxed(),
            Some(_) => continue,
        };
        messages = (messages, values).prop_map(set).boxed();
    }
    for oneof in kind.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let mut choices: Vec<_> = oneof.fields().map(chosen).collect();
        if kind.name() == "Refused" {
            choices.push(Just(None).boxed());
        }
        messages = (messages, Union::new(choices)).prop_map(set).boxed();
    }
    messages
}

/// Returns the messages of which one field bounds another one.
fn message_with_related_fields(kind: &MessageDescriptor) -> Option<BoxedStrategy<DynamicMessage>> {
    Some(match kind.name() {
        "Hello" => typed(
            kind,
            (1..=u32::MAX, any::<u32>(), 0..3, any::<[u8; 32]>()).prop_map(
                |(oldest, more, step, bytes)| pb::Hello {
                    oldest,
                    newest: oldest.saturating_add(more),
                    nonce: if step == 1 { bytes.to_vec() } else { Vec::new() },
                    proof: if step == 2 { bytes.to_vec() } else { Vec::new() },
                },
            ),
        ),
        "MountFlag" => typed(kind, flag().prop_map(|flag| pb_flag(&flag))),
        "Features" => typed(
            kind,
            (select(FsType::ALL), any::<[u32; 4]>(), any::<u32>()).prop_map(
                |(fs, [compatible, incompatible, read_only_compatible, block_bytes], minor)| {
                    let kernel_major = if minor.is_multiple_of(2) { 6 } else { 0 };
                    pb::Features {
                        fs_type: fs.to_wire(),
                        compatible,
                        incompatible,
                        read_only_compatible,
                        block_bytes,
                        kernel_major,
                        kernel_minor: if kernel_major == 0 { 0 } else { minor },
                    }
                },
            ),
        ),
        "Failed" => {
            let tool = prop_oneof![
                Just((0, 0)),
                (1..=255_i32).prop_map(|status| (status, 0)),
                (1..=64_i32).prop_map(|signal| (-1, signal)),
            ];
            let node = any::<Option<(u32, u32)>>();
            typed(
                kind,
                (select(Step::ALL), 0..=4095_i32, tool, node, 0..=0o7777_u32).prop_map(
                    |(step, errno, (tool_exit, tool_signal), owner, mode)| pb::Failed {
                        step: step.to_wire(),
                        errno,
                        tool_exit,
                        tool_signal,
                        node: owner.map(|(uid, gid)| Node { uid, gid, mode }),
                    },
                ),
            )
        }
        _ => return None,
    })
}

const ATTACHED_AT: &str = "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:.]{8,20}Z";
const ATTACHED_OR_UNTOLD: &str = "(20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:.]{8,20}Z)?";

/// Returns values of a field as a correct peer sets it.
fn field_values(field: &FieldDescriptor) -> BoxedStrategy<Value> {
    let text = |values: BoxedStrategy<String>| values.prop_map(Value::String).boxed();
    let matching = |pattern: &'static str| text(pattern.boxed());
    match (field.parent_message().name(), field.name()) {
        ("Stage" | "PublishFilesystem", "flags") => {
            let Kind::Message(kind) = field.kind() else { panic!("flags are messages") };
            let flag = move |flag: &_| Value::Message(dynamic(&kind, &pb_flag(flag)));
            return flags()
                .prop_map(move |all| Value::List(all.iter().map(&flag).collect()))
                .boxed();
        }
        ("Refused", "copied") => return Just(Value::Bool(true)).boxed(),
        ("Welcome", "version") => return (1..=u32::MAX).prop_map(Value::U32).boxed(),
        ("Promise", "attached_at") => return matching(ATTACHED_AT),
        ("Disk", "partition") => return (0..=255_u32).prop_map(Value::U32).boxed(),
        _ => {}
    }
    let one = match field.kind() {
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Uint32 => any::<u32>().prop_map(Value::U32).boxed(),
        Kind::Uint64 => any::<u64>().prop_map(Value::U64).boxed(),
        Kind::Enum(kind) => {
            let known = kind.values().filter(|value| !value.name().ends_with("_UNSPECIFIED"));
            let numbers: Vec<_> = known.map(|value| value.number()).collect();
            select(numbers).prop_map(Value::EnumNumber).boxed()
        }
        Kind::Message(kind) => message(&kind).prop_map(Value::Message).boxed(),
        Kind::Bytes => match field.name() {
            "nonce" | "proof" => proptest::collection::vec(any::<u8>(), 32),
            _ => proptest::collection::vec(any::<u8>(), 0..=4096),
        }
        .prop_map(|bytes| Value::Bytes(bytes.into()))
        .boxed(),
        Kind::String => match field.name() {
            "volume_id" => text(volume().prop_map(|volume| volume.to_string()).boxed()),
            "device_hint" => matching("(/dev/(xvd|sd)[a-z]{1,2}[0-9]{0,2})?"),
            "attached_at" => matching(ATTACHED_OR_UNTOLD),
            "release" => matching("[!-~]{1,64}"),
            "wider" => matching("--[!-~]{1,254}"),
            "policy_digest" => matching("[0-9a-f]{64}"),
            _ => text(path().prop_map(|path| path.to_string()).boxed()),
        },
        other => panic!("values for {}, which is {other:?}", field.full_name()),
    };
    if field.is_list() {
        proptest::collection::vec(one, 0..20).prop_map(Value::List).boxed()
    } else {
        one
    }
}

/// Returns encoded messages of the kind with this name.
fn encoded(name: &str) -> impl Strategy<Value = Vec<u8>> {
    let files = protox::compile(["helper.proto"], ["."]).expect("helper.proto compiles");
    let pool = DescriptorPool::from_file_descriptor_set(files).expect("descriptors");
    let kind = pool.get_message_by_name(&format!("ebs.csi.helper.v1.{name}")).expect("the message");
    message(&kind).prop_map(|message| message.encode_to_vec())
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn encoded_request_decodes_unchanged(bytes in encoded("Request")) {
        let request = Request::decode(&bytes).expect("a correct request");
        prop_assert_eq!(&request.encode(), &bytes);
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn encoded_job_decodes_unchanged(job in job()) {
        prop_assert_eq!(Job::decode(&job.encode()), Ok(job));
    }

    #[test]
    fn encoded_reply_decodes_unchanged(bytes in encoded("Reply")) {
        let reply = Reply::decode(&bytes).expect("a correct reply");
        prop_assert_eq!(&reply.encode(), &bytes);
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
    fn damaged_request_never_panics_decoder(request in encoded("Request"), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = request;
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
                attached_at: AttachedAt::parse(&format!("2026-01-01T00:00:00.{:014}Z", 0)).ok(),
            },
            staging: longest.clone(),
            target: longest,
            read_only: true,
            flags,
        }),
    };
    assert!(frame::framed(&request.encode()).is_ok());
}

#[test]
fn unpublish_changes_its_target_stats_changes_nothing() {
    let volume = VolumeId::parse("vol-00000000000000001").expect("an id");
    let path = KubeletPath::parse("/k/pods/a").expect("a path");
    let unpublish =
        Operation::Unpublish(Unpublish { volume: volume.clone(), target: path.clone() });
    assert_eq!(unpublish.changed_path(), Some(&path));
    let stats = Operation::Stats(Stats { volume, path });
    assert_eq!(stats.changed_path(), None);
}

/// Logs and metrics tell requests by their names, and a change is always logged.
#[test]
fn rows_have_distinct_names_and_log_changes() {
    let names: std::collections::BTreeSet<_> = REQUESTS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), REQUESTS.len());
    for row in REQUESTS {
        assert!(row.success_is_logged || row.paths.iter().all(|path| !path.changed), "{row:?}");
        assert!(!row.may_take_long || row.slots == Slots::Slow, "{row:?}");
    }
}
