//! Options of switch features that are refused, and what the others mean.

use squall_base::{Rate, Span};
use squall_netsim::model::{Ground, Marks, NetworkConfig, NetworkOptions, OptionError};

/// Ten packets of 4096 bytes, or 40,000 bytes, of bandwidth-delay product.
fn ground() -> Ground<'static> {
    Ground {
        bdp_packets: 10,
        bdp_bytes: &|| 40_000.0,
        packet: 4096,
        trimmed: 64,
        least: 0,
        line: Rate::gbps(100),
        rtt: Span::micros(3),
        ahead: Span::ZERO,
        rates: 0.1,
        times: 10.0,
        reroute_us: 100.0,
        seed: 1,
    }
}

fn settled(features: &str, options: NetworkOptions) -> Result<NetworkConfig, OptionError> {
    squall_research::register();
    let features = Some(features.parse().expect("any text is a list"));
    NetworkOptions { features, ..options }.settle(&ground())
}

fn lossless() -> NetworkOptions {
    NetworkOptions { lossless: true, ..NetworkOptions::default() }
}

#[test]
fn features_that_cannot_be_are_refused_with_what_is_expected() {
    let adaptive = || NetworkOptions { adaptive: true, ..lossless() };
    let unmarked = || NetworkOptions { ecn: Some(Marks::NONE), ..lossless() };
    for (features, options, says) in [
        ("turbo", lossless(), "known: deflection, rates"),
        ("rates+rates", lossless(), "rates is given twice"),
        ("rates:speed=3", lossless(), "known: forget_us, capacity"),
        ("rates:capacity", lossless(), "expected capacity=VALUE"),
        ("rates", adaptive(), "one path"),
        ("rates:forget_us=1e10", lossless(), "forget_us 1e10 is out of range 0..=1000000000"),
        ("rates:capacity=1.1", lossless(), "out of range 0.01..=1"),
        ("deflection", NetworkOptions::default(), "with `lossless`"),
        ("deflection", adaptive(), "one path"),
        ("deflection:tokens=0", lossless(), "tokens 0 is out of range 1..=7"),
        ("deflection:tokens=8", lossless(), "tokens 8 is out of range 1..=7"),
        ("deflection:entries=0", lossless(), "out of range 1..=1024"),
        ("deflection:short=0", lossless(), "at least one byte"),
        ("deflection:threshold=8192", lossless(), "where marks begin, 8192"),
        ("deflection", unmarked(), "no marks"),
    ] {
        let error = settled(features, options).map(|_| ()).expect_err(features);
        assert_eq!(error.key, "features", "{features}");
        assert!(error.to_string().contains(says), "{features}: {error}");
    }
}

#[test]
fn defaults_follow_from_the_network() {
    let config = settled("deflection", lossless()).expect("sound");
    let text = format!("{:?}", config.features);
    // Two thirds of the two packets at which marks begin.
    for part in ["threshold: 5460", "tokens: 4", "entries: 8", "short: 8192"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(
        config.port(Rate::gbps(10), false).lanes,
        5,
        "one lane for each token, and the escape lane"
    );
    let both = settled("rates:capacity=0.5+deflection:tokens=2", lossless()).expect("sound");
    assert_eq!(both.features.len(), 2);
    assert!(both.needs().rates && both.needs().messages);
}
