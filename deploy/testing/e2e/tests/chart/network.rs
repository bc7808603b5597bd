//! The NetworkPolicies: what they let pass, and that the pods' ports are among it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::flags::words;
use crate::{array, each, find, helm, read, render};

const ENABLED: &str = "networkPolicy.enabled=true";

fn policies(helm: &std::path::Path, values: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["--set", ENABLED];
    for value in values {
        arguments.extend(["--set", value]);
    }
    render(helm, &arguments)
}

fn policy<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    &find(objects, "NetworkPolicy", name).expect("a NetworkPolicy")["spec"]
}

/// Returns each rule in words: its ports, and the CIDRs to which they are open.
fn rules(rules: &Value) -> Vec<String> {
    let of = |rule: &Value| {
        let port = |it: &Value| format!("{} {}", it["protocol"].as_str().unwrap_or(""), it["port"]);
        let cidr = |it: &Value| it["ipBlock"]["cidr"].as_str().unwrap_or("?").to_owned();
        let ports: Vec<String> = array(&rule["ports"]).iter().map(port).collect();
        let to: Vec<String> = array(&rule["to"]).iter().map(cidr).collect();
        let to = if to.is_empty() { "all".to_owned() } else { to.join(",") };
        format!("{} to {to}", ports.join(","))
    };
    array(rules).iter().map(of).collect()
}

const LINK_LOCAL: &str =
    "169.254.169.254/32,169.254.170.2/32,169.254.170.23/32,fd00:ec2::254/128,fd00:ec2::23/128";
const METADATA: &str = "169.254.169.254/32,fd00:ec2::254/128";

#[test]
fn link_local_addresses_match_those_of_controller() {
    let connector = read("controller/ec2/src/sdk/connector.rs");
    let (_, list) = connector.split_once("LINK_LOCAL: [&str; 5]").expect("the list");
    let hosts = words(list, "[\"", "];");
    let cidr = |host: &&str| match host.strip_prefix('[') {
        Some(v6) => format!("{}/128", v6.trim_end_matches(']')),
        None => format!("{host}/32"),
    };
    let hosts: BTreeSet<String> = hosts.iter().map(cidr).collect();
    let named: BTreeSet<String> = LINK_LOCAL.split(',').map(str::to_owned).collect();
    assert_eq!(hosts, named);
}

#[test]
fn controller_reaches_only_dns_kubernetes_and_aws() {
    let Some(helm) = helm() else { return };
    let objects = policies(&helm, &[]);
    let controller = policy(&objects, "ebs-csi-controller");
    assert_eq!(controller["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(controller["ingress"], json!([]), "no metrics, no ingress");
    let link_local = format!("TCP 80 to {LINK_LOCAL}");
    let expected =
        ["UDP 53,TCP 53 to all", "TCP 443,TCP 6443 to all", "TCP 443 to all", &link_local];
    assert_eq!(rules(&controller["egress"]), expected);

    let narrowed = policies(
        &helm,
        &[
            "networkPolicy.dnsPorts={5353}",
            "networkPolicy.apiServer.cidrs={10.0.0.1/32},networkPolicy.apiServer.ports={8443}",
            "networkPolicy.aws.cidrs={10.0.1.0/24}",
        ],
    );
    let expected = [
        "UDP 5353,TCP 5353 to all",
        "TCP 8443 to 10.0.0.1/32",
        "TCP 443 to 10.0.1.0/24",
        &link_local,
    ];
    assert_eq!(rules(&policy(&narrowed, "ebs-csi-controller")["egress"]), expected);
}

#[test]
fn urls_in_values_open_their_ports() {
    let Some(helm) = helm() else { return };
    let env = |name: &str, url: &str| {
        format!("controller.env[0].name={name},controller.env[0].value={url}")
    };
    for (value, rule) in [
        ("proxy.http_proxy=http://user:word@proxy.example.com:3128", "TCP 3128 to all"),
        ("proxy.http_proxy=proxy:8080", "TCP 8080 to all"),
        ("proxy.http_proxy=https://proxy.example.com", "TCP 443 to all"),
        ("controller.otelTracing.otelExporterEndpoint=http://collector:4317", "TCP 4317 to all"),
        (&env("AWS_EC2_ENDPOINT", "http://192.0.2.1:4599"), "TCP 4599 to 192.0.2.1/32"),
        (&env("AWS_ENDPOINT_URL_STS", "http://[2001:db8::1]:80/"), "TCP 80 to 2001:db8::1/128"),
        (
            &env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/v1"),
            "TCP 80 to 192.0.2.1/32",
        ),
    ] {
        let objects = policies(&helm, &[value]);
        let text = policy(&objects, "ebs-csi-controller")["egress"].clone();
        let all = rules(&text);
        assert_eq!(all.len(), 5, "{value}: {all:?}");
        assert_eq!(all.last().map(String::as_str), Some(rule), "{value}");
    }
    // A variable that names no place opens nothing.
    let other = policies(&helm, &[&env("AWS_PROFILE", "http://192.0.2.1:1")]);
    let egress = rules(&policy(&other, "ebs-csi-controller")["egress"]);
    assert_eq!(egress.len(), 4, "{egress:?}");
    let own = "networkPolicy.controllerEgress[0].ports[0].port=8443";
    let own = policies(&helm, &[own]);
    let last = rules(&policy(&own, "ebs-csi-controller")["egress"]).pop();
    assert_eq!(last.as_deref(), Some(" 8443 to all"));
}

#[test]
fn nodes_reach_instance_metadata_at_most() {
    let Some(helm) = helm() else { return };
    let endpoint = "node.env[0].name=AWS_EC2_METADATA_SERVICE_ENDPOINT,node.env[0].value=http://192.0.2.1:4601";
    let metadata = format!("TCP 80 to {METADATA}");
    let without = "node.metadataSources=kubernetes";
    let own = "networkPolicy.nodeEgress[0].ports[0].port=8080";
    for (values, expected) in [
        (&[][..], &[metadata.as_str()][..]),
        (&["node.metadataSources=imds"], &[&metadata]),
        (&[without], &[]),
        (&[endpoint], &["TCP 4601 to 192.0.2.1/32"]),
        (&[without, own], &[" 8080 to all"]),
    ] {
        let objects = policies(&helm, values);
        let node = policy(&objects, "ebs-csi-node");
        assert_eq!(node["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(node["ingress"], json!([]), "{values:?}");
        assert_eq!(rules(&node["egress"]), expected, "{values:?}");
    }
}

#[test]
fn each_network_policy_fits_its_pods() {
    let Some(helm) = helm() else { return };
    let mut seen = 0;
    each(&helm, |set, objects| {
        for policy in objects.iter().filter(|it| it["kind"] == "NetworkPolicy") {
            let name = policy["metadata"]["name"].as_str().expect("a name");
            let workload = ["Deployment", "DaemonSet"]
                .into_iter()
                .find_map(|kind| find(objects, kind, name))
                .unwrap_or_else(|| panic!("{set}: {name} is no workload"));
            assert_eq!(
                policy["spec"]["podSelector"], workload["spec"]["selector"],
                "{set}: {name}"
            );
            let namespace = |it: &Value| it["metadata"]["namespace"].clone();
            assert_eq!(namespace(policy), namespace(workload), "{set}: {name}");
            let declared: BTreeSet<i64> =
                array(&workload["spec"]["template"]["spec"]["containers"])
                    .iter()
                    .flat_map(|it| array(&it["ports"]))
                    .filter_map(|port| port["containerPort"].as_i64())
                    .collect();
            let open: BTreeSet<i64> = array(&policy["spec"]["ingress"])
                .iter()
                .flat_map(|rule| array(&rule["ports"]))
                .filter_map(|port| port["port"].as_i64())
                .collect();
            let metrics = find(objects, "Service", name).is_some();
            let expected = if metrics { declared } else { BTreeSet::new() };
            assert_eq!(open, expected, "{set}: {name}");
            seen += 1;
        }
    });
    assert!(seen >= 8, "{seen}");
}
