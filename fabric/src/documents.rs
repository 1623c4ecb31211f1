//! Pages of `docs/` that are made from the code.

use std::path::Path;

/// Fails if `docs/NAME` is not `made`, which is then left beside it, as `NAME.new`.
pub(crate) fn is_up_to_date(name: &str, made: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::fs::read_to_string(&page).unwrap_or_default() != made {
        let fresh = page.with_extension("md.new");
        std::fs::write(&fresh, made).expect("docs/ is writable");
        panic!("{} is out of date: replace it by {}", page.display(), fresh.display());
    }
}
