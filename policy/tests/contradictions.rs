//! The build refuses rules of which one undoes what another says, or that give no reason.

#[path = "../build/calls.rs"]
mod calls;
#[path = "../build/constants.rs"]
#[expect(dead_code, reason = "mounts.toml has the others")]
mod constants;
#[path = "../build/disks.rs"]
mod disks;
#[path = "../build/environment.rs"]
mod environment;
#[path = "../build/literal.rs"]
mod literal;
#[path = "../build/process.rs"]
mod process;
#[path = "../build/sandbox.rs"]
mod sandbox;
#[path = "../build/settings.rs"]
mod settings;
#[path = "../build/sockets.rs"]
mod sockets;

const FREE: &str = r#"calls = ["prctl"]
why = "any operation""#;
const NAMED: &str = r#"calls = ["prctl"]
argument = 0
one_of = ["PR_SET_NAME"]
why = "one operation""#;
const DUMPABLE: &str = r#"calls = ["prctl"]
argument = 0
one_of = ["PR_GET_DUMPABLE"]
why = "another operation""#;
const OTHERWISE: &str = r#"calls = ["prctl"]
argument = 0
one_of = ["PR_GET_DUMPABLE"]
otherwise = "EPERM"
why = "every operation has an answer""#;
const CHOSEN: &str = r#"calls = ["prctl"]
argument = 0
one_of = ["PR_SET_NAME"]
when = "naming"
why = "one operation by choice""#;

/// Returns a profile whose rules are these.
fn profile(name: &str, rest: &str, rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| format!("[[{name}.rules]]\n{rule}\n"));
    format!(
        r#"[{name}]
about = "a process"
{rest}
[{name}.identity]
uid = 1
gid = 1
groups = []
other_unprivileged_uid = false
why = "a user"
[{name}.capabilities]
permitted = []
[{name}.limits]
[{name}.landlock]
floor = 1
floor_is_hard = true
why = "no file"
files = "listed"
tcp = "denied"
scopes = []
{}"#,
        rules.collect::<String>()
    )
}

/// Compiles a profile `child` with the rules `own`. It uses the groups `one` and `two`, and
/// inherits from a profile with the rules `inherited`.
fn compile(inherited: &[&str], one: &[&str], two: &[&str], own: &[&str]) -> Result<String, String> {
    let group = |name: &str, rules: &[&str]| {
        let rules = rules.iter().map(|rule| match rule.strip_prefix("free:") {
            Some(free) => format!("[{name}]\n{free}\n"),
            None => format!("[[{name}.rules]]\n{rule}\n"),
        });
        rules.collect::<String>()
    };
    let filler = [
        "calls = [\"getpid\"]\nwhy = \"its number\"",
        "calls = [\"gettid\"]\nwhy = \"its number\"",
    ];
    let one = group("one", &[one, &filler[..1]].concat());
    let two = group("two", &[two, &filler[1..]].concat());
    let mut profiles = sandbox::Profiles::new(sandbox::groups(&format!("{one}{two}"))?);
    assert!(profiles.names().is_empty());
    profiles.add(&profile("parent", "use = []", inherited))?;
    profiles.add(&profile("child", "use = [\"one\", \"two\"]\ninherits = \"parent\"", own))?;
    profiles.compile()
}

#[test]
fn free_call_beside_conditional_one_is_refused() {
    const LIST: &str = "free:calls = [\"prctl\"]\nwhy = \"any operation\"";
    const PARENT: &str = "[[parent.rules]]";
    const ONE: &str = "[[one.rules]]";
    const TWO: &str = "[[two.rules]]";
    const OWN: &str = "[[child.rules]]";
    type Rules = &'static [&'static str];
    let cases: [([Rules; 4], &str, [&str; 2]); 14] = [
        ([&[FREE], &[NAMED], &[], &[]], "is free and then conditional", [PARENT, ONE]),
        ([&[NAMED], &[], &[FREE], &[]], "is conditional and then free", [PARENT, TWO]),
        ([&[FREE], &[], &[], &[NAMED]], "is free and then conditional", [PARENT, OWN]),
        ([&[NAMED], &[], &[], &[FREE]], "is conditional and then free", [PARENT, OWN]),
        ([&[FREE], &[], &[], &[CHOSEN]], "is free and then conditional", [PARENT, OWN]),
        ([&[], &[FREE], &[NAMED], &[]], "is free and then conditional", [ONE, TWO]),
        ([&[], &[LIST], &[NAMED], &[]], "is free and then conditional", ["[one] calls", TWO]),
        ([&[], &[LIST, NAMED], &[], &[]], "is free and then conditional", ["[one] calls", ONE]),
        ([&[], &[NAMED, FREE], &[], &[]], "is conditional and then free", [ONE, ONE]),
        ([&[], &[FREE], &[], &[NAMED]], "is free and then conditional", [ONE, OWN]),
        ([&[], &[], &[], &[NAMED, FREE]], "is conditional and then free", [OWN, OWN]),
        ([&[], &[FREE], &[], &[FREE]], "is free twice", [ONE, OWN]),
        ([&[], &[NAMED], &[], &[NAMED]], "has PR_SET_NAME twice", [ONE, OWN]),
        (
            [&[], &[NAMED], &[], &[OTHERWISE]],
            "has another row beside one with `otherwise`",
            [ONE, OWN],
        ),
    ];
    for ([inherited, one, two, own], problem, [first, second]) in cases {
        let refused = compile(inherited, one, two, own).expect_err(problem);
        let expected = format!("[child] prctl {problem}: in {first} and in {second}");
        assert_eq!(refused, expected);
    }
}

#[test]
fn rows_with_different_conditions_are_accepted() {
    for rules in [[&[][..], &[NAMED], &[], &[DUMPABLE]], [&[DUMPABLE], &[], &[NAMED], &[]]] {
        let [inherited, one, two, own] = rules;
        let made = compile(inherited, one, two, own).expect("no contradiction");
        assert_eq!(made.matches("PR_SET_NAME").count(), 1, "{made}");
    }
}

#[test]
fn row_without_own_reason_is_refused() {
    for why in ["", "as above", "as of another row", "the same, as above"] {
        for row in [format!("why = {why:?}"), format!("why = \"any operation\"\nkept = {why:?}")] {
            let row = format!("calls = [\"prctl\"]\n{row}");
            let refused = compile(&[], &[], &[], &[&row]).expect_err(why);
            assert_eq!(refused, "[child] prctl has no reason");
        }
    }
}

/// The policy's own file with one text replaced by another one.
fn changed(file: &str, from: &str, to: &str) -> String {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo");
    let path = std::path::Path::new(&here).join(file);
    let text = std::fs::read_to_string(path).expect("a file of the policy");
    assert!(text.contains(from), "{file} has no {from:?}");
    text.replacen(from, to, 1)
}

#[test]
fn row_of_table_that_cannot_hold_fails_build() {
    const TOOLS: [&str; 2] = ["mke2fs", "e2fsck-full"];
    let profiles = ebs_csi_policy::profile::ALL.map(|profile| profile.name);
    let compile = |file: &str, text: &str| match file {
        "process.toml" => process::compile(text, &profiles).map(drop),
        "environment.toml" => environment::compile(text, &profiles, &TOOLS).map(drop),
        "sockets.toml" => sockets::compile(text, &profiles).map(drop),
        "disks.toml" => disks::compile(text).map(|found| {
            assert_eq!(found.names, ["guest", "production", "sandbox"]);
            assert!(found.policies.contains("LoopFile") && found.disks.contains("LoopFile"));
        }),
        _ => settings::compile(text).map(drop),
    };
    for (file, from, to, word) in [
        ("process.toml", "kinds = [\"net\"]", "kinds = [\"time\"]", "\"time\""),
        ("process.toml", "kinds = [\"net\"]", "kinds = [\"user\"]", "two rows"),
        ("process.toml", "[\"supervisor\", ", "[\"init\", ", "\"init\""),
        ("process.toml", "\"SECBIT_NOROOT\"", "\"SECBIT_ROOT\"", "\"SECBIT_ROOT\""),
        ("process.toml", "why = \"every right", "why = \"as above", "no reason"),
        ("environment.toml", "begins = [\"HOME\"]", "begins = [\"\"]", "every variable"),
        ("environment.toml", "[\"node-lifecycle\"]", "[\"nobody\"]", "\"nobody\""),
        ("environment.toml", "tools = [\"mke2fs\"]", "tools = [\"mkfs\"]", "\"mkfs\""),
        ("sockets.toml", "mode = \"0660\"", "mode = \"0666\"", "everybody"),
        ("sockets.toml", "peers = [\"node-agent\"]", "peers = [\"root\"]", "\"root\""),
        ("sockets.toml", "group = \"node-agent\"", "group = \"disk\"", "\"disk\""),
        ("disks.toml", "value = \"QEMU NVMe Ctrl\"\n", "", "attribute"),
        ("disks.toml", "flag = \"--guest-disks\"\n", "", "a flag of its own"),
        ("disks.toml", "disks = \"guest\"", "disks = \"none\"", "recognises no disk"),
        ("settings.toml", "default = \"check\"", "default = \"allow\"", "wider"),
        ("settings.toml", "default = \"2\"", "default = \"1\"", "wider"),
    ] {
        assert_eq!(compile(file, &changed(file, "", "")), Ok(()), "{file}");
        let error = compile(file, &changed(file, from, to)).expect_err(to);
        assert!(error.contains(word), "{file} {to}: {error}");
    }
}
