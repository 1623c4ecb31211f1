//! Checks whether a job started from here would encrypt its packets.

use super::finding::Finding;

/// Judges the key file of the job and FI_SQUALL_TSS. Returns `None` if neither is set.
pub(super) fn judge(key_file: Option<&str>, tss: Option<&str>) -> Option<Finding> {
    match (key_file, tss) {
        (Some(file), Some("off")) => Some(Finding::note(
            format!(
                "packets are not encrypted: FI_SQUALL_TSS=off, although FI_SQUALL_KEY_FILE={file} \
                 gives the job a key"
            ),
            "unset FI_SQUALL_TSS   # at every rank, unless everybody may read and change the packets",
        )),
        (Some(file), _) => Some(Finding::well(format!(
            "packets are encrypted, with the key of FI_SQUALL_KEY_FILE={file}"
        ))),
        (None, Some("required")) => Some(Finding::note(
            "FI_SQUALL_TSS=required: only applications that give an auth_key can open endpoints",
            "export FI_SQUALL_KEY_FILE=FILE   # at every rank, a file with the key of the job",
        )),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn a_key_that_is_not_used_is_noted() {
        let level = |key, tss| judge(key, tss).map(|finding| finding.level);
        let key = Some("/home/me/job.key");
        assert_eq!(level(key, Some("off")), Some(Level::Note));
        assert_eq!(level(key, None), Some(Level::Well));
        assert_eq!(level(key, Some("required")), Some(Level::Well));
        assert_eq!(level(None, Some("required")), Some(Level::Note));
        assert_eq!((level(None, None), level(None, Some("off"))), (None, None));
    }
}
