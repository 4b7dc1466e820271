use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const DECLARED: &[Parameter] = &[
    Parameter::integer("threads", "", "threads", [1, 16, 1 << 40]),
    Parameter::number("share", "share", "share of reads", [-1.0, 0.7, 1e300]),
    Parameter::word("order", "order of visits", &["random", "sequential"]),
    Parameter { name: "weights", unit: "pages", help: "weights", kind: Kind::Weights { default: "4:1" } },
    Parameter { name: "node", unit: "", help: "nodes", kind: Kind::Nodes { default: "all" } },
];

fn values(text: &str) -> Values {
    text.parse::<Params>().unwrap_or_else(|e| panic!("{text}: {e}")).values(DECLARED).expect(text)
}

fn refused(text: &str) -> String {
    let values = text.parse::<Params>().and_then(|params| params.values(DECLARED));
    values.expect_err(text).to_string()
}

#[test]
fn commas_and_colons_separate_parameters() {
    let expected = values("threads=4,order=sequential,weights=4:1");
    assert_eq!(expected.u32("threads"), 4);
    assert_eq!(expected.word("order"), "sequential");
    assert_eq!(expected.weights("weights"), [4, 1]);
    assert_eq!(expected.f64("share"), 0.7);
    assert!(expected.nodes("node").is_empty());
    assert_eq!(values("node=ddr:cxl.1,threads=2").nodes("node"), ["ddr", "cxl.1"]);
    for same in [
        "threads=4:order=sequential:weights=4:1",
        "weights=4:1:threads=4,order=sequential",
        "order=sequential,weights=4:1,threads=4:share=0.7",
        " threads = 4 ,, order=sequential, weights=4:1,",
    ] {
        assert_eq!(values(same), expected, "{same}");
    }
}

#[test]
fn name_ends_at_first_colon() {
    assert_eq!(split_name("ratio:weights=4:1"), ("ratio", "weights=4:1"));
    assert_eq!(split_name("stream"), ("stream", ""));
    assert_eq!(split_name(" stream : threads=1"), ("stream", " threads=1"));
    assert_eq!(split_name(""), ("", ""));
}

#[test]
fn list_splits_at_items_not_at_parameters() {
    for (text, items) in [
        ("local,interleave", vec!["local", "interleave"]),
        ("local,ratio:weights=4:1,local+anb", vec!["local", "ratio:weights=4:1", "local+anb"]),
        ("hot-cold:low=3,high=6,local", vec!["hot-cold:low=3,high=6", "local"]),
        ("hot-cold:low=3,high=6:hot=5,local:x=1", vec!["hot-cold:low=3,high=6:hot=5", "local:x=1"]),
        ("local,low=3", vec!["local,low=3"]),
        ("low=3,local", vec!["low=3", "local"]),
        ("local,,", vec!["local", "", ""]),
        ("", vec![""]),
    ] {
        assert_eq!(split_list(text), items, "{text}");
    }
    let items =
        split_list_unless("default,numab=1,memtide:local+hot-cold:low=1,high=2,numab=2+demotion", |piece| {
            piece.starts_with("numab=")
        });
    assert_eq!(items, ["default", "numab=1", "memtide:local+hot-cold:low=1,high=2", "numab=2+demotion"]);
}

#[test]
fn errors_say_what_is_allowed() {
    for (text, expected) in [
        ("threads", "'threads' is not a parameter: expected KEY=VALUE, several separated by commas"),
        ("order=random,4", "'4' is not a parameter: expected KEY=VALUE, several separated by commas"),
        ("threads=1:threads=2", "parameter 'threads' is given twice"),
        ("thread=1", "unknown parameter 'thread'; known: threads, share, order, weights, node"),
        ("=1", "unknown parameter ''; known: threads, share, order, weights, node"),
        (
            "threads=0",
            "invalid value '0' for parameter 'threads': expected an integer from 1 to 1099511627776",
        ),
        (
            "threads=4:5",
            "invalid value '4:5' for parameter 'threads': expected an integer from 1 to 1099511627776",
        ),
        ("order=", "invalid value '' for parameter 'order': expected one of random, sequential"),
        (
            "weights=4:256",
            "invalid value '4:256' for parameter 'weights': expected an integer from 1 to 255 for each tier, \
             fastest first, joined by ':'",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
    for nodes in ["", "a:a", "a:", "a b", "a/b"] {
        assert_eq!(
            refused(&format!("node={nodes}")),
            format!(
                "invalid value '{nodes}' for parameter 'node': expected names of memory nodes, each once, \
                 joined by ':'"
            )
        );
    }
    for share in ["nan", "-1.1", "1e301", "much"] {
        let expected =
            format!("invalid value '{share}' for parameter 'share': expected a number from -1 to 1");
        assert!(refused(&format!("share={share}")).starts_with(&expected), "{share}");
    }
    let none = "x=1".parse::<Params>().expect("well-formed").values(&[]).expect_err("none is declared");
    assert_eq!(none.to_string(), "unknown parameter 'x'; there are none");
}

#[test]
fn set_refuses_text_outside_grammar() {
    let mut params = Params::new();
    params.set("a", 1).expect("allowed");
    assert!(
        params.set("a", 2).is_err() && params.set("b", "1,c=2").is_err() && params.set("b", "1:c=2").is_err()
    );
    assert!(params.set("b", "1,c").is_err());
    params.set("b", "4:1").expect("allowed");
    assert_eq!(params.to_string(), "a=1,b=4:1");
}

/// A value for each declared parameter.
fn declared() -> impl Strategy<Value = Vec<Value>> {
    let weights = prop::collection::vec(1..=WEIGHT_MAX, 1..5);
    let nodes = prop::collection::btree_set("[a-z0-9_.-]{1,8}", 1..4);
    let all = (1..=1u64 << 40, -1.0..1e300f64, 0..2usize, weights, nodes);
    all.prop_map(|(threads, share, word, weights, nodes)| {
        let word = Value::Word(["random", "sequential"][word]);
        let nodes = Value::Nodes(nodes.into_iter().collect());
        vec![Value::Integer(threads), Value::Number(share), word, Value::Weights(weights), nodes]
    })
}

proptest! {
    #[test]
    fn printed_values_parse_to_themselves(values in declared(), given in 0..32u8, colons in 0..32u8) {
        let mut text = String::new();
        let chosen = DECLARED.iter().zip(&values).enumerate().filter(|(at, _)| given >> at & 1 == 1);
        for (at, (parameter, value)) in chosen {
            let between = if text.is_empty() { "" } else if colons >> at & 1 == 1 { ":" } else { "," };
            text.push_str(&format!("{between}{}={value}", parameter.name));
        }
        let parsed = text.parse::<Params>().expect("well-formed").values(DECLARED).expect("allowed");
        for (at, (name, value)) in parsed.0.iter().enumerate() {
            let expected = if given >> at & 1 == 1 { &values[at] } else { &DECLARED[at].default_value() };
            prop_assert_eq!(value, expected, "{} of {}", name, text);
        }
    }

    #[test]
    fn printed_params_parse_to_themselves(text in "[ab=:, 0-9é]{0,40}") {
        if let Ok(params) = text.parse::<Params>() {
            let printed = params.to_string();
            prop_assert_eq!(printed.parse::<Params>().expect("as printed"), params, "{}", printed);
        }
    }

    #[test]
    fn printed_list_splits_into_its_items(
        items in vec(("[a-z+-]{1,8}", vec(("[a-z]{1,4}", "[0-9:.]{0,4}"), 0..4)), 1..6),
    ) {
        let item = |(name, params): &(String, Vec<(String, String)>)| {
            let params: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if params.is_empty() { name.clone() } else { format!("{name}:{}", params.join(",")) }
        };
        let items: Vec<String> = items.iter().map(item).collect();
        let text = items.join(",");
        prop_assert_eq!(split_list(&text), items);
    }

    #[test]
    fn any_text_parses_or_is_refused(text in any::<String>()) {
        let (_, params) = split_name(&text);
        let _ = params.parse::<Params>().and_then(|params| params.values(DECLARED));
        prop_assert_eq!(split_list(&text).join(","), text);
    }
}
