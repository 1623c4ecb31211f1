//! Checks of the pages of `docs/` that are generated from the code.

use std::path::Path;

/// Checks that the page `docs/NAME` has the text `made`. This is for the tests of this crate and of
/// those that depend on it.
///
/// # Panics
/// Panics if the page has another text, and writes `made` beside it as `NAME.new`.
pub fn is_up_to_date(name: &str, made: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::fs::read_to_string(&page).unwrap_or_default() != made {
        let fresh = page.with_extension("md.new");
        std::fs::write(&fresh, made).expect("docs/ is writable");
        panic!("{} is out of date: replace it by {}", page.display(), fresh.display());
    }
}
