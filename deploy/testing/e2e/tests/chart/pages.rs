//! Every command of the pages of `PAGES`, run in a shell from the page's own text, in the page's
//! order. Scripts stand in for the programs of `STOOD_IN`; Helm is real.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ebs_csi_e2e::program::output;
use ebs_csi_e2e::repository::{entries, quoted, read, root, yaml};
use serde_json::Value;

use crate::go_driver::go_driver;
use crate::manifests::kubectl;
use crate::{MONITORS, SNAPSHOTS, array, helm, render, text_of};

/// The pages, and the least number of their commands.
const PAGES: [(&str, usize); 8] = [
    ("install.md", 9),
    ("upgrade.md", 15),
    ("credentials.md", 12),
    ("hardening.md", 2),
    ("operate.md", 7),
    ("snapshots.md", 3),
    ("group-snapshots.md", 1),
    ("volumes.md", 3),
];

/// What a reader writes in the place of words in capitals.
const WORDS: [(&str, &str); 11] = [
    ("ACCOUNT", "444455556666"),
    ("PROVIDER", "oidc.eks.eu-west-1.amazonaws.com/id/A1"),
    ("REGISTRY", "registry.example.com/team"),
    ("NAMESPACE", "kube-system"),
    ("CLUSTER", "production"),
    ("REVISION", "7"),
    ("REGION", "eu-west-1"),
    ("SECRET", "wJalrXUtnFEMI"),
    ("ROLE", "arn:aws:iam::111122223333:role/ebs-csi"),
    ("NODE", "node-1"),
    ("KEY", "AKIAIOSFODNN7EXAMPLE"),
];

/// The programs that a script stands in for: why, and what the script checks.
const STOOD_IN: [(&str, &str); 6] = [
    ("aws", "asks AWS: the files that it names are there and are JSON"),
    (
        "kubectl",
        "needs a cluster: kubectl itself parses the line and asks a server that is not there; the \
         image was pushed",
    ),
    ("./deploy/install/images/build", "compiles for minutes: the real script has the flags"),
    ("./deploy/install/images/push", "needs a registry: the real script has the flags"),
    ("docker", "needs a registry"),
    ("ebs-csi-policy", "reads a node's processes: the program has the subcommand"),
];

/// Programs that run as they are.
const REAL: [&str; 3] = ["helm", "for", "sed"];

const RUN_ELSEWHERE: &str = "./deploy/testing/clusters/run";

/// The release of the Go driver that Helm finds, as its memory driver reads it.
const RELEASE: &str = "
- name: aws-ebs-csi-driver
  namespace: kube-system
  version: 7
  info: {status: deployed}
  chart: {metadata: {name: aws-ebs-csi-driver, version: 2.64.0, apiVersion: v2}}
  config:
    controller: {batching: false, extraVolumeTags: {team: storage}}
    node: {tolerateAllTaints: false}
";

/// Returns the commands of a page in its order: the indented lines, joined where one ends in a
/// backslash or a loop goes on, and the commands between backticks.
fn commands(page: &str) -> Vec<String> {
    let programs = STOOD_IN.map(|(name, _)| name);
    let is_command = |text: &str| {
        let mut words = text.split_whitespace();
        let program = words.next().unwrap_or_default();
        let is_program = program == "helm" || programs.contains(&program);
        (is_program && words.count() >= 3) || text.starts_with(RUN_ELSEWHERE)
    };
    let mut all = Vec::new();
    let mut prose = String::new();
    let mut command = String::new();
    let mut fenced = false;
    for line in page.lines().chain([""]) {
        fenced ^= line.starts_with("```");
        if fenced || line.starts_with("```") {
            continue;
        }
        if let Some(code) = line.strip_prefix("    ") {
            command.push_str(code);
            command.push('\n');
            let is_loop = command.starts_with("for ") && !command.ends_with("\ndone\n");
            if !is_loop && !code.ends_with('\\') {
                all.extend(Some(std::mem::take(&mut command)).filter(|it| !it.starts_with('#')));
            }
            continue;
        }
        assert!(command.is_empty(), "a command that does not end: {command}");
        prose.push_str(line);
        prose.push(' ');
        if line.is_empty() || line.starts_with('|') {
            all.extend(quoted(&prose).filter(|span| is_command(span)).map(str::to_owned));
            prose.clear();
        }
    }
    all
}

/// Returns the YAML that a page shows.
fn yaml_blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next())
}

/// Returns the file that the first line of a block names, for a reader to write.
fn file_of(block: &str) -> Option<&str> {
    block.lines().next()?.strip_prefix("# ").filter(|name| name.ends_with(".yaml"))
}

fn with_words(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// A directory that looks like the repository's root, with the stand-ins.
fn workplace(page: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let real = root().canonicalize().expect("the repository");
    for name in ["policy", "controller"] {
        symlink(real.join(name), path(name)).expect("a link");
    }
    std::fs::create_dir_all(path("deploy/install/images")).expect("a directory");
    for (directory, own) in [("deploy", "install"), ("deploy/install", "images")] {
        for (name, target) in entries(directory) {
            if name != own {
                let target = target.canonicalize().expect("a file");
                symlink(target, path(directory).join(name)).expect("a link");
            }
        }
    }
    std::fs::create_dir(path("bin")).expect("a directory");
    for (name, text) in [
        ("bin/helm", include_str!("stand_ins/helm")),
        ("bin/kubectl", include_str!("stand_ins/kubectl")),
        ("bin/aws", include_str!("stand_ins/aws")),
        ("bin/docker", "#!/bin/sh\n"),
        ("bin/ebs-csi-policy", include_str!("stand_ins/ebs-csi-policy")),
        ("deploy/install/images/build", include_str!("stand_ins/build")),
        ("deploy/install/images/push", include_str!("stand_ins/push")),
        ("reused.yaml", "image: {containerRegistry: registry.example.com/team}\n"),
    ] {
        std::fs::write(path(name), text).expect("a script");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path(name), executable).expect("its mode");
    }
    std::fs::write(path("release.yaml"), RELEASE).expect("a release");
    for block in yaml_blocks(page) {
        if let Some(name) = file_of(block) {
            std::fs::write(path(name), with_words(block)).expect("a file");
        }
    }
    place
}

fn script(name: &str) -> PathBuf {
    root().join("deploy/install/images").join(name).canonicalize().expect("a script")
}

fn run(command: &str, place: &Path, helm: &Path) -> Result<String, String> {
    let search = format!("{}:/usr/bin:/bin", place.join("bin").display());
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", &with_words(command)])
        .current_dir(place)
        .env_clear()
        .env("PATH", search)
        .env("HOME", place)
        .env("HELM", helm)
        .env("KUBECTL", helm.with_file_name("../kubernetes/kubectl"))
        .env("BUILD", script("build"))
        .env("PUSH", script("push"));
    output(&mut shell)
}

#[test]
fn commands_of_installation_pages_run_as_written() {
    let Some(helm) = helm() else { return };
    let images = "./deploy/install/images/build --output images --repository REGISTRY/ebs-csi";
    let mut objects = 0;
    for (name, least) in PAGES {
        let page = read(&format!("deploy/docs/{name}"));
        let place = workplace(&page);
        let all = commands(&page);
        assert!(all.len() >= least, "{name}: {all:#?}");
        let uses_images = all.iter().any(|command| command.contains("images/"));
        if uses_images && !all.iter().any(|command| command.trim() == images) {
            // The page names install.md for it.
            assert!(page.contains("(install.md#images)"), "{name}");
            run(images, place.path(), &helm).expect(images);
        }
        for command in &all {
            let first = command.split_whitespace().next().unwrap_or_default();
            if first == RUN_ELSEWHERE {
                let scenario = command.split_whitespace().last().unwrap_or_default();
                let rig = read("deploy/testing/clusters/run");
                assert!(rig.contains(&format!("    \"{scenario}\": ")), "{name}: {command}");
                continue;
            }
            let known = STOOD_IN.iter().any(|(program, _)| *program == first);
            assert!(known || REAL.contains(&first), "{name}: {command}");
            let ended = run(command, place.path(), &helm);
            ended.unwrap_or_else(|why| panic!("{name}: {command}{why}"));
        }
        let flags = "--take-ownership --force-conflicts";
        if page.contains(&format!("`{flags}`")) {
            let upgrade = all.iter().find(|command| command.starts_with("helm upgrade"));
            let upgrade = upgrade.expect("a command for the flags");
            let ended = run(&format!("{} {flags}", upgrade.trim()), place.path(), &helm);
            ended.unwrap_or_else(|why| panic!("{name}: {upgrade}{why}"));
        }
        for block in yaml_blocks(&page) {
            let is_used = |file: &str| all.iter().any(|it| it.contains(&format!(" {file}")));
            assert!(file_of(block).is_none_or(is_used), "{name}: no command uses {block}");
        }
        if name == "credentials.md" {
            check_trust_of_irsa(place.path());
        }
        check_images(name, place.path());
        objects += check_objects(name, &all, &helm);
    }
    assert!(objects >= 20, "{objects}");
}

/// The page's command leaves nothing of the example's account and provider.
fn check_trust_of_irsa(place: &Path) {
    let text = std::fs::read_to_string(place.join("trust.json")).expect("what sed wrote");
    let example = read("policy/iam/trust-irsa.json");
    let words = [("111122223333", "ACCOUNT"), ("oidc.example.com/id/0", "PROVIDER")];
    let replaced = words.iter().fold(example, |text, (from, to)| text.replace(from, to));
    assert_eq!(text, with_words(&replaced));
}

/// What Helm would install is what the page pushes.
fn check_images(name: &str, place: &Path) {
    let lines = |file: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(place.join(file)).unwrap_or_default();
        text.lines().map(|line| line.trim_matches('"').to_owned()).collect()
    };
    let repository = |image: &str| image.split('@').next().unwrap_or_default().to_owned();
    let registry = "registry.example.com/team/";
    let own: BTreeSet<_> = lines("rendered")
        .iter()
        .filter(|image| image.starts_with(registry))
        .map(|image| repository(image).split(':').next().unwrap_or_default().to_owned())
        .collect();
    let pushed: BTreeSet<_> = lines("pushed")
        .iter()
        .map(|image| image.rsplit_once(':').expect("a tag").0.to_owned())
        .collect();
    match name {
        "install.md" => assert_eq!(pushed.len(), 4, "{pushed:?}"),
        "upgrade.md" | "credentials.md" => assert_eq!(own.len(), 4, "{own:?}"),
        "operate.md" => {
            assert_eq!(pushed.len(), 8, "{pushed:?}");
            assert!(own.len() >= 7 && own.is_subset(&pushed), "{own:?}: {pushed:?}");
        }
        _ => {}
    }
    for image in lines("rendered").iter().filter(|image| image.contains("/ebs-csi-")) {
        assert!(image.starts_with(&format!("{registry}ebs-csi-")), "{name}: {image}");
    }
    for image in &pushed {
        assert!(image.starts_with(registry), "{name}: {image}");
    }
}

/// The objects that commands name are the chart's or the Go driver's.
fn check_objects(name: &str, commands: &[String], helm: &Path) -> usize {
    let metrics = ["--set", "controller.enableMetrics=true"];
    let arguments = [&SNAPSHOTS[..], &MONITORS[..], &metrics[..]].concat();
    let rendered = render(helm, &arguments);
    let mut known: BTreeSet<String> = rendered
        .iter()
        .map(|it| (it["kind"].clone(), it["metadata"]["name"].clone()))
        .chain(go_driver().into_iter().map(|it| (it.kind.into(), it.name.into())))
        .map(|(kind, name)| {
            let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{}/{}", of(&kind).to_lowercase(), of(&name))
        })
        .collect();
    known.insert("app=ebs-csi-node".to_owned());
    for service in rendered.iter().filter(|it| it["kind"] == "Service") {
        for port in array(&service["spec"]["ports"]) {
            let words = [&service["metadata"]["name"], &port["name"]].map(Value::as_str);
            let [name, port] = words.map(Option::unwrap_or_default);
            known.insert(format!("services/{name}:{port}"));
        }
    }
    let mut seen = 0;
    for command in commands.iter().filter(|command| command.starts_with("kubectl ")) {
        for word in command.split(|c: char| c.is_whitespace() || "',".contains(c)) {
            let kinds =
                ["deployment/", "daemonset/", "clusterrole/", "clusterrolebinding/", "app="];
            if kinds.iter().any(|kind| word.starts_with(kind)) {
                assert!(known.contains(word), "{name}: {word} in {command}");
                seen += 1;
            }
            if let Some((_, path)) = word.split_once("/services/") {
                let service = format!("services/{}", path.split('/').next().unwrap_or_default());
                assert!(known.contains(&service), "{name}: {service} in {command}");
                seen += 1;
            }
        }
    }
    seen
}

/// What a page has a GitOps controller install is the chart's, and its values are accepted.
#[test]
fn values_in_gitops_objects_are_accepted() {
    let Some(helm) = helm() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let page = read("deploy/docs/operate.md");
    let mut seen = 0;
    for block in yaml_blocks(&page) {
        let object: Value = serde_saphyr::from_str(block).expect(block);
        let (chart, name, values) = match object["kind"].as_str() {
            Some("Application") => {
                let source = &object["spec"]["source"];
                let helm = &source["helm"];
                (&source["path"], &helm["releaseName"], &helm["valuesObject"])
            }
            Some("HelmRelease") => {
                let spec = &object["spec"];
                (&spec["chart"]["spec"]["chart"], &spec["releaseName"], &spec["values"])
            }
            Some(kind) => panic!("{kind} is no object of a GitOps controller"),
            None => continue,
        };
        let chart = chart.as_str().expect("a path").trim_start_matches("./");
        assert_eq!((chart, name.as_str()), ("deploy/install/chart", Some("aws-ebs-csi-driver")));
        assert!(values.is_object(), "{block}");
        let file = place.path().join("values.json");
        std::fs::write(&file, values.to_string()).expect("a file");
        let rendered = text_of(&helm, "release", &["--values", &file.display().to_string()]);
        let rendered = rendered.unwrap_or_else(|why| panic!("{why}: {block}"));
        assert!(rendered.contains("registry.example.com/ebs-csi-controller:"), "{block}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}

/// The trust policies name the namespace of the pages and the account of the chart's defaults.
#[test]
fn trust_policies_name_account_of_chart() {
    let values = yaml("deploy/install/chart/values.yaml");
    let account = values["controller"]["serviceAccount"]["name"].as_str().expect("a name");
    let condition = |name: &str, key: &str| {
        let policy = read(&format!("policy/iam/{name}.json"));
        let policy: Value = serde_json::from_str(&policy).expect("JSON");
        let [statement] = array(&policy["Statement"]) else { panic!("{name}: one statement") };
        statement["Condition"]["StringEquals"][key].clone()
    };
    let subject = format!("system:serviceaccount:kube-system:{account}");
    for (name, key, expected) in [
        ("trust", "aws:RequestTag/kubernetes-namespace", "kube-system"),
        ("trust", "aws:RequestTag/kubernetes-service-account", account),
        ("trust-irsa", "oidc.example.com/id/0:sub", &subject),
        ("trust-irsa", "oidc.example.com/id/0:aud", "sts.amazonaws.com"),
    ] {
        assert_eq!(condition(name, key), expected, "{name}");
    }
}

/// `helm get values` without `-o yaml` begins with a heading, which is a key of YAML.
#[test]
fn helm_get_values_heading_is_refused_by_name() {
    let Some(helm) = helm() else { return };
    let place = workplace("");
    let get = "helm get values aws-ebs-csi-driver --namespace kube-system";
    let install = "helm template aws-ebs-csi-driver deploy/install/chart --namespace kube-system \
                   --values values.yaml --set image.containerRegistry=REGISTRY";
    let installed = |options: &str| {
        run(&format!("{get}{options} >values.yaml; {install}"), place.path(), &helm)
    };
    for (options, refused) in [("", "USER-SUPPLIED VALUES"), (" --all", "COMPUTED VALUES")] {
        let said = installed(options).expect_err(options);
        for words in [refused, get, "-o yaml"] {
            assert!(said.contains(words), "{options}: no {words:?} in: {said}");
        }
    }
    installed(" -o yaml").expect("without the heading");
}

#[test]
fn page_commands_are_found_and_can_fail() {
    let Some(helm) = helm() else { return };
    let page = "Text `helm test x\ny z` and `helm test x`.\n\n    # a comment\n    helm a \\\n        b\n\
                \n| `kubectl label a b` |\n\n    for x in 1; do\n        aws $x\n    done\n";
    let found = [
        "helm test x y z",
        "helm a \\\n    b\n",
        "kubectl label a b",
        "for x in 1; do\n    aws $x\ndone\n",
    ];
    assert_eq!(commands(page), found);
    let place = workplace("");
    for broken in [
        "helm upgrade --install x deploy/install/chart --no-such-flag",
        "helm upgrade --install x deploy/install/chart --set node.noSuchKey=1",
        "helm rollback x",
        "aws iam put-role-policy --policy-document file://policy/iam/none.json",
        "helm upgrade x deploy/install/chart --reset-then-reuse-values --set node.noSuchKey=1",
        "ebs-csi-policy look --all",
        "cargo run --release --manifest-path controller/node-lifecycle/Cargo.toml -- look",
        "./deploy/install/images/build --output images --registry x",
        "./deploy/install/images/push x --images images --registry",
    ] {
        run(broken, place.path(), &helm).expect_err(broken);
    }
    if kubectl().is_none() {
        return;
    }
    for broken in ["kubectl delete pod -l app=x --cascades=orphan", "kubectl rollout stats x/y"] {
        run(broken, place.path(), &helm).expect_err(broken);
    }
}
