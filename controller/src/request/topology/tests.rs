//! Tests the placement that a request asks for, and the topology of a response.

use super::*;
use proptest::prelude::*;

fn term(segments: &[(&str, &str)]) -> Topology {
    Topology {
        segments: segments.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    }
}

fn requirement(preferred: Vec<Topology>, requisite: Vec<Topology>) -> TopologyRequirement {
    TopologyRequirement { requisite, preferred }
}

const ARN: &str = "arn:aws:outposts:us-east-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1";

#[test]
fn one_term_decides_and_preferred_ones_come_first() {
    let at = |zone: &str| Placement { zone: Some(zone.to_owned()), ..Default::default() };
    let rows = [
        (vec![term(&[(ZONE, "b")])], vec![term(&[(ZONE, "a")]), term(&[(ZONE, "b")])], at("b")),
        (vec![], vec![term(&[(LEGACY_ZONE, "a")])], at("a")),
        (vec![term(&[("kubernetes.io/os", "linux")])], vec![term(&[(ZONE, "c")])], at("c")),
        (vec![term(&[(ZONE, "a"), (LEGACY_ZONE, "old")])], vec![], at("a")),
        (
            vec![term(&[(ZONE_ID, "use1-az6")]), term(&[(ZONE, "a")])],
            vec![],
            Placement { zone_id: Some("use1-az6".to_owned()), ..Default::default() },
        ),
        (
            vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])],
            vec![],
            Placement { outpost: Some(ARN.to_owned()), ..at("a") },
        ),
        (
            vec![term(&[
                (ZONE, "a"),
                (OUTPOST, "op-0aaaaaaaaaaaaaaa1"),
                (REGION, "us-east-1"),
                (PARTITION, "aws"),
                (ACCOUNT, "111122223333"),
            ])],
            vec![],
            Placement { outpost: Some(ARN.to_owned()), ..at("a") },
        ),
        // An Outpost is in one zone, which its ARN alone does not tell.
        (
            vec![term(&[(OUTPOST, ARN)])],
            vec![term(&[(ZONE, "a")])],
            Placement { outpost: Some(ARN.to_owned()), ..Default::default() },
        ),
        // An Outpost of one term is not combined with the zone of another.
        (vec![term(&[(ZONE, "a")]), term(&[(ZONE, "b"), (OUTPOST, ARN)])], vec![], at("a")),
    ];
    for (preferred, requisite, want) in rows {
        let given = requirement(preferred, requisite);
        assert_eq!(choose(Some(&given)), Ok(Some(want)), "{given:?}");
    }
}

#[test]
fn terms_without_a_zone_mean_any_zone() {
    assert_eq!(choose(None), Ok(None));
    assert_eq!(choose(Some(&requirement(vec![], vec![]))), Ok(None));
    for other in [term(&[("kubernetes.io/os", "linux")]), term(&[(ZONE, "")])] {
        let given = requirement(vec![other.clone()], vec![other]);
        assert_eq!(choose(Some(&given)), Ok(None), "{given:?}");
    }
}

#[test]
fn incomplete_outpost_or_2_zone_keys_are_refused() {
    for bad in
        [term(&[(OUTPOST, "op-0aaaaaaaaaaaaaaa1")]), term(&[(ZONE, "a"), (ZONE_ID, "use1-az6")])]
    {
        let failure = choose(Some(&requirement(vec![], vec![bad]))).unwrap_err();
        assert_eq!(failure.condition(), Condition::InvalidField);
    }
}

#[test]
fn a_copy_must_lie_in_a_requisite_term() {
    let rows = [
        (vec![], true),
        (vec![term(&[("kubernetes.io/os", "linux")])], true),
        (vec![term(&[(ZONE, "b")]), term(&[(ZONE, "a")])], true),
        (vec![term(&[(LEGACY_ZONE, "a")])], true),
        (vec![term(&[(ZONE_ID, "use1-az6")])], true),
        (vec![term(&[(ZONE, "b")])], false),
        (vec![term(&[(ZONE_ID, "use1-az1")])], false),
        (vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])], false),
    ];
    for (requisite, ok) in rows {
        let given = requirement(vec![], requisite);
        let answer = check(Some(&given), "a", Some("use1-az6"), None);
        assert_eq!(answer.is_ok(), ok, "{given:?}");
        if let Err(failure) = answer {
            assert_eq!(failure.condition(), Condition::NoCapacityInTopology);
        }
    }
    let on_outpost = requirement(vec![], vec![term(&[(ZONE, "a"), (OUTPOST, ARN)])]);
    assert!(check(Some(&on_outpost), "a", None, Some(ARN)).is_ok());
}

/// A region, account or partition that the term gives is kept, and a full ARN is used as it is.
#[test]
fn outpost_id_is_completed_with_region_and_account() {
    let owner = CallerIdentity {
        account: "111122223333".to_owned(),
        arn: "arn:aws-us-gov:iam::111122223333:role/ebs".to_owned(),
        partition: "aws-us-gov".to_owned(),
    };
    const ID: &str = "op-0aaaaaaaaaaaaaaa1";
    let completed =
        "arn:aws-us-gov:outposts:us-gov-west-1:111122223333:outpost/op-0aaaaaaaaaaaaaaa1";
    let of_account =
        "arn:aws-us-gov:outposts:us-gov-west-1:444455556666:outpost/op-0aaaaaaaaaaaaaaa1";
    let whole = "arn:aws:outposts:eu-west-1:444455556666:outpost/op-0aaaaaaaaaaaaaaa1";
    let (account, partition) = ((ACCOUNT, "444455556666"), (PARTITION, "aws"));
    for (given, lacks, arn) in [
        (vec![(OUTPOST, ID)], true, Some(completed)),
        (vec![(OUTPOST, ID), account, (PARTITION, "")], true, Some(of_account)),
        (vec![(OUTPOST, ID), account, partition, (REGION, "eu-west-1")], false, Some(whole)),
        (vec![(OUTPOST, ARN)], false, Some(ARN)),
        (vec![(ZONE, "a")], false, None),
    ] {
        for mut requirement in
            [requirement(vec![term(&given)], vec![]), requirement(vec![], vec![term(&given)])]
        {
            assert_eq!(lacks_owner(&requirement), lacks, "{given:?}");
            complete_outposts(&mut requirement, "us-gov-west-1", &owner);
            let chosen = choose(Some(&requirement)).unwrap().unwrap();
            assert_eq!(chosen.outpost.as_deref(), arn, "{given:?}");
        }
    }
}

#[test]
fn response_topology_has_zone_and_outpost_segments() {
    assert_eq!(of_volume("us-east-1a", None), term(&[(ZONE, "us-east-1a")]));
    let on_outpost = of_volume("us-east-1a", Some(ARN));
    assert_eq!(on_outpost.segments.len(), 5);
    assert_eq!(on_outpost.segments[OUTPOST], "op-0aaaaaaaaaaaaaaa1");
    // The driver accepts the topology that it returns.
    assert_eq!(
        choose(Some(&requirement(vec![on_outpost], vec![]))).unwrap().unwrap().outpost.as_deref(),
        Some(ARN)
    );
    assert_eq!(of_volume("z", Some("not an arn")).segments.len(), 1);
}

proptest! {
    #[test]
    fn zone_chosen_for_name_ignores_zone_order(name in ".{0,40}", mut zones in proptest::collection::vec("[a-z]{1,4}", 1..6)) {
        let refs: Vec<&str> = zones.iter().map(String::as_str).collect();
        let first = choose_zone(&refs, &name).map(str::to_owned);
        prop_assert!(first.is_some());
        zones.reverse();
        let refs: Vec<&str> = zones.iter().map(String::as_str).collect();
        prop_assert_eq!(choose_zone(&refs, &name).map(str::to_owned), first);
    }
}

#[test]
fn names_spread_over_the_zones() {
    let zones = ["a", "b", "c"];
    let mut counts = HashMap::new();
    for n in 0..300 {
        *counts.entry(choose_zone(&zones, &format!("pvc-{n}"))).or_insert(0) += 1;
    }
    assert!(counts.values().all(|n| *n > 60), "{counts:?}");
    assert_eq!(choose_zone(&[], "x"), None);
}
