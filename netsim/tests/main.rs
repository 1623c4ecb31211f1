//! Integration tests.

mod files;
