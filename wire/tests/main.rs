//! The integration tests of this crate, in one program.

#[path = "../fuzz/properties.rs"]
mod checks;
#[path = "../examples/samples/mod.rs"]
mod samples;

mod codes;
mod corpus;
mod document;
mod golden;
mod lengths;
mod properties;
mod rules;
mod strategy;
mod views;
mod wireshark;
