//! Node facts from a working metadata service and from faulty ones.

#[path = "scripted/metadata_service.rs"]
mod metadata_service;

use std::time::Duration;

use ebs_csi_node_agent::facts::imds::{self, ImdsError};
use ebs_csi_node_agent::facts::{self, Source, Sources};
use metadata_service::{Behaviour, MetadataService, pages};

fn read(service: &MetadataService) -> Result<facts::NodeFacts, ImdsError> {
    imds::read(&imds::address(Some(&service.url()), None).unwrap())
}

#[test]
fn imds_facts_need_1_token_and_4_pages() {
    let service = MetadataService::usual();
    let facts = read(&service).unwrap();
    assert_eq!(facts.instance.as_str(), "i-0123456789abcdef0");
    assert_eq!(facts.instance_type, "m5.large");
    assert_eq!(facts.zone, "us-west-2c");
    assert_eq!(facts.region.as_deref(), Some("us-west-2"));
    assert_eq!((facts.network_interfaces, facts.other_volumes), (2, 2));
    assert_eq!(facts.outpost, None);
    assert_eq!(
        service.requests(),
        [
            "PUT /latest/api/token",
            "GET /latest/dynamic/instance-identity/document",
            "GET /latest/meta-data/network/interfaces/macs/",
            "GET /latest/meta-data/block-device-mapping/",
            "GET /latest/meta-data/outpost-arn",
        ]
    );
}

#[test]
fn outpost_arn_from_imds_is_parsed_or_refused() {
    let mut pages = pages();
    pages.push((
        "/latest/meta-data/outpost-arn",
        "arn:aws:outposts:us-west-2:123456789012:outpost/op-0123456789abcdef0",
    ));
    let facts = read(&MetadataService::start(Behaviour::Usual, &pages)).unwrap();
    assert_eq!(facts.outpost.unwrap().id, "op-0123456789abcdef0");
    pages.pop();
    pages.push(("/latest/meta-data/outpost-arn", "no arn"));
    let error = read(&MetadataService::start(Behaviour::Usual, &pages)).unwrap_err();
    assert!(error.to_string().contains("outpost-arn"), "{error}");
}

/// The token request hangs or is denied, and the agent never tries IMDSv1.
#[test]
fn missing_imds_token_error_names_hop_limit() {
    for behaviour in [Behaviour::HangingToken, Behaviour::NoToken] {
        let service = MetadataService::start(behaviour, &pages());
        let error = read(&service).unwrap_err();
        assert!(matches!(error, ImdsError::Session(_)), "{error:?}");
        assert!(error.to_string().contains("hop limit"), "{error}");
        assert!(
            service.requests().iter().all(|request| request.starts_with("PUT ")),
            "version 1 is never tried"
        );
    }
}

#[test]
fn imds_server_errors_are_retried() {
    assert!(read(&MetadataService::start(Behaviour::Shaky, &pages())).is_ok());
}

#[test]
fn hanging_imds_page_error_names_page() {
    let error = read(&MetadataService::start(Behaviour::HangingPage, &pages())).unwrap_err();
    assert!(error.to_string().contains("instance-identity/document"), "{error}");
}

#[test]
fn next_source_is_used_when_imds_fails() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("labels");
    std::fs::write(
        &file,
        "topology.kubernetes.io/zone=\"eu-west-1a\"\nnode.kubernetes.io/instance-type=\"m5.large\"\n\
         ebs.csi.aws.com/instance-id=\"i-0fedcba9876543210\"\n",
    )
    .unwrap();
    let service = MetadataService::start(Behaviour::NoToken, &pages());
    let facts = facts::read(&Sources {
        order: vec![Source::Imds, Source::Kubernetes],
        imds: imds::address(Some(&service.url()), None),
        dmi: dir.path().to_owned(),
        files: vec![file],
        timeout: Duration::ZERO,
    })
    .unwrap();
    assert_eq!(facts.source, Source::Kubernetes);
    assert_eq!(facts.zone, "eu-west-1a");
}
