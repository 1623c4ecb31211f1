//! Choice by name: every algorithm and every parameter can be chosen by name, and a forbidden
//! choice is refused with the allowed ones.

use squall_cc::base::{Rate, Span, Time};
use squall_cc::{
    ChoiceError, FlowEvent, NetworkProfile, PathsConfig, Sender, SenderCc, SenderConfig, Setting,
};

fn network(trimming: bool) -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, trimming)
}

/// Sets every parameter of an algorithm to its current value, and to values that no field can hold.
fn every_parameter<C>(
    name: &str,
    settings: &[Setting],
    by_name: impl Fn(&str) -> Result<C, ChoiceError>,
) {
    let mut all = String::from(name);
    for (i, setting) in settings.iter().enumerate() {
        let Setting { name: parameter, what, allowed, value } = *setting;
        assert!(!what.is_empty() && !allowed.is_empty(), "{name}:{parameter} is not explained");
        let plain =
            parameter.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(plain, "{name}:{parameter} is hard to write");
        assert!(settings[..i].iter().all(|other| other.name != parameter), "{parameter} twice");
        all += &format!("{}{parameter}={value}", if i == 0 { ':' } else { ',' });
        for bad in ["-1", "-inf", "NaN"] {
            let Err(error) = by_name(&format!("{name}:{parameter}={bad}")) else {
                panic!("{name}:{parameter}={bad} was accepted");
            };
            assert!(matches!(error, ChoiceError::Range(_)), "{error}");
            assert!(error.to_string().contains("allowed: "), "{error}");
            assert!(error.to_string().starts_with(parameter), "{error}");
        }
        let words = by_name(&format!("{name}:{parameter}=much")).err().map(|e| e.to_string());
        let says =
            format!("{name}: {parameter} is \"much\", which is no number, allowed: {allowed}");
        assert_eq!(words, Some(says));
    }
    assert!(by_name(&all).is_ok(), "{all}: {:?}", by_name(&all).err());
    let unknown = by_name(&format!("{name}:no_such=1")).err().map(|error| error.to_string());
    let unknown = unknown.expect("there is no such parameter");
    assert!(unknown.starts_with(&format!("{name} has no parameter \"no_such\"")), "{unknown}");
    assert!(settings.iter().all(|setting| unknown.contains(setting.name)), "{unknown}");
}

#[test]
fn every_sender_and_its_parameters() {
    for &(name, what) in SenderConfig::NAMES {
        assert!(!what.is_empty());
        for trimming in [true, false] {
            let network = network(trimming);
            let config = SenderConfig::by_name(name, &network).expect("a name of the list");
            assert_eq!(config.name(), name);
            every_parameter(name, &config.settings(), |text| SenderConfig::by_name(text, &network));
            let mut sender = Sender::new(&config, Time::ZERO);
            if sender.budget(Time::ZERO).credit == Some(0) {
                // The algorithm must know first what there is to send.
                sender.on_event(Time::ZERO, FlowEvent::Blocked { backlog: 4096 });
            }
            assert!(sender.budget(Time::ZERO).allows(Time::ZERO, 0, 4096), "{name} cannot begin");
        }
    }
}

#[test]
fn every_selector_and_its_parameters() {
    for &(name, what) in PathsConfig::NAMES {
        assert!(!what.is_empty());
        let config = PathsConfig::by_name(name, 64).expect("a name of the list");
        assert_eq!((config.name(), config.paths()), (name, 64));
        every_parameter(name, &config.settings(), |text| PathsConfig::by_name(text, 64));
        assert!(PathsConfig::by_name(name, 0).is_err(), "{name} over no path");
    }
}

#[test]
fn a_value_set_by_name_arrives() {
    let text = " nscc : gamma=0.7, quick_adapt=0 ,qa_threshold_us=inf,,min_wnd=8192 ";
    let config = SenderConfig::by_name(text, &network(false)).expect("all allowed");
    for (name, value) in
        [("gamma", 0.7), ("quick_adapt", 0.0), ("qa_threshold_us", f64::INFINITY), ("min_wnd", 8e3)]
    {
        let settings = config.settings();
        let is = settings.iter().find(|s| s.name == name).expect("listed").value;
        assert!(is == value || (is / value - 1.0).abs() < 0.03, "{name} is {is}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_list() {
    let error = SenderConfig::by_name("reno:a=1", &network(true)).expect_err("no such algorithm");
    let text = error.to_string();
    assert!(
        text.starts_with("no congestion control is called \"reno\", allowed: nscc, "),
        "{text}"
    );
    let error = PathsConfig::by_name("", 4).expect_err("no such selector").to_string();
    assert!(error.starts_with("no path selection is called \"\", allowed: reps, "), "{error}");
    let slow = NetworkProfile { line: Rate(5), ..network(true) };
    let error = SenderConfig::by_name("nscc", &slow).expect_err("no such network").to_string();
    assert_eq!(error, "link rate is 5, allowed: 1 Mb/s to 100 Tb/s");
}

#[cfg(not(feature = "research"))]
#[test]
fn a_name_that_the_build_leaves_out_is_refused_with_its_feature() {
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
    for name in ["sperc", "dart", "3cpo:wm_min=1"] {
        let error = SenderConfig::by_name(name, &network).expect_err(name).to_string();
        assert!(error.contains("built without research"), "{error}");
    }
}
